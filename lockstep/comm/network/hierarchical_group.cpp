#include "lockstep/comm/network/hierarchical_group.h"

#include <cstring>
#include <span>
#include <utility>

#include "lockstep/comm/checks.h"
#include "lockstep/comm/gathering.h"
#include "lockstep/comm/host_memory.h"
#include "lockstep/comm/network/run_values.h"
#include "lockstep/comm/network/subtree_sums.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/comm/shm/in_collective.h"

namespace lockstep::comm {
namespace {

// So much the first ranks of the nodes send each other at once, for all of their nodes: one trip. Of more each rank
// sends its share, cut into a part for each node: two trips, and the fewest bytes.
constexpr std::size_t kFewBytes = std::size_t(16) << 10;

struct Moves {
  std::vector<Outgoing> out;
  std::vector<Incoming> in;

  void send(int peer, std::span<const std::byte> bytes) { out.push_back({.peer = peer, .bytes = bytes}); }
  void receive(int peer, std::span<std::byte> bytes) { in.push_back({.peer = peer, .bytes = bytes}); }
  void go(Wire& wire, const CollectiveNote& note) const { wire.exchange(note, out, in); }
};

// Elements of which this rank makes the result, and what the other nodes have of them.
struct Awaited {
  ElementRange range;
  std::vector<RunValues> theirs;  // by node; of this one nothing
};

Awaited await(const Levels& levels, const SubtreeSums& sums, int own_node, const ElementRange& range,
              const std::vector<int>& holders, Moves& moves) {
  Awaited awaited{.range = range, .theirs = {}};
  for (int node = 0; node < levels.nodes(); ++node) {
    RunValues& values = awaited.theirs.emplace_back(sums, levels.runs(node), node == own_node ? 0 : range.size());
    for (std::size_t i = 0; node != own_node && i < values.size(); ++i)
      moves.receive(holders[std::size_t(node)], values.bytes(i, {0, range.size()}));
  }
  return awaited;
}

void send_values(const RunValues& own, const ElementRange& range, int peer, Moves& moves) {
  for (std::size_t i = 0; i < own.size(); ++i) moves.send(peer, own.bytes(i, range));
}

// `own`: this node's values, from the element `first` on.
void finish_awaited(const SubtreeSums& sums, const Awaited& awaited, const RunValues& own, std::size_t first,
                    int own_node, std::byte* to) {
  std::vector<SubtreeValue> values;
  for (int node = 0; node < int(awaited.theirs.size()); ++node) {
    const RunValues& theirs = awaited.theirs[std::size_t(node)];
    for (std::size_t i = 0; i < theirs.size(); ++i)
      values.push_back(node == own_node ? own.value(i, first) : theirs.value(i));
  }
  sums.finish(values, awaited.range.size(), to);
}

std::byte* start_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }

}  // namespace

HierarchicalGroup::HierarchicalGroup(std::vector<int> nodes, int rank, std::shared_ptr<Wire> wire,
                                     std::shared_ptr<NodeGroup> node)
    : WrappedGroup(std::make_shared<NetworkGroup>(nodes, rank, std::move(wire), node)),
      nodes_(std::move(nodes)),
      node_(std::move(node)),
      levels_(nodes_),
      here_(*node_) {}

// What a rank fails at within its node the others hear of by the wire.
template <class Body>
void HierarchicalGroup::run(Body&& body) {
  const InCollective in_collective(node_->node().member);
  or_abort(*this, body);
}

// The first phase: who waits there may wait for a rank beside it that is not in a call, and hears of failures elsewhere
// by itself.
template <class Phase>
void HierarchicalGroup::begin(Phase&& phase) {
  const ListeningAbroad listening(node_->node().member);
  phase();
}

void HierarchicalGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  check_reducible(tensor, op, "all_reduce");
  if (!lies_in_host(tensor)) {
    const at::Tensor dense = host_values(tensor);
    all_reduce(dense, op);
    tensor.detach().copy_(dense);
    return;
  }
  const CollectiveNote note = make_note(Collective::all_reduce, int(op), tensor);
  const SubtreeSums sums(tensor.scalar_type(), op, size());
  std::byte* const data = start_of(tensor);
  const auto elements = std::size_t(tensor.numel());
  const bool are_few = elements * sums.width() <= kFewBytes;
  const Shares shares{elements, are_few ? 1 : topology().local_world};
  run([&] {
    RunValues own(sums, levels_.runs(own_node()), shares.size(topology().local_rank));
    const auto take = [&](const std::vector<const std::byte*>& inputs, std::size_t first, std::size_t n) {
      own.add_up(inputs, first_here(), first, n);
    };
    begin([&] { here_.collect(note, data, sums.width(), shares, take); });
    if (!are_few)
      reduce_parts(note, sums, own, shares, data);
    else if (topology().local_rank == 0)
      reduce_few(note, sums, own, shares, data);
    here_.spread(note, data, sums.width(), shares);
  });
}

// All first ranks make all of the result.
void HierarchicalGroup::reduce_few(const CollectiveNote& note, const SubtreeSums& sums, const RunValues& own,
                                   const Shares& shares, std::byte* data) {
  const Stretch all = stretch_of_leaders(levels_, shares.elements);
  Moves moves;
  const Awaited awaited = await(levels_, sums, own_node(), all.range, all.holders, moves);
  for (int node = 0; node < levels_.nodes(); ++node)
    if (node != own_node()) send_values(own, all.range, levels_.first(node), moves);
  moves.go(*wire(), note);
  finish_awaited(sums, awaited, own, 0, own_node(), data);
}

// Of each stretch of the share every node's holder makes a part, and gives it to the others.
void HierarchicalGroup::reduce_parts(const CollectiveNote& note, const SubtreeSums& sums, const RunValues& own,
                                     const Shares& shares, std::byte* data) {
  const int local = topology().local_rank;
  const std::size_t start = shares.begin(local), width = sums.width();
  Moves values, results;
  std::vector<Awaited> awaited;
  for (const Stretch& stretch : stretches_of(levels_, shares.elements, own_node(), local))
    for (int maker = 0; maker < levels_.nodes(); ++maker) {
      const ElementRange part = part_of(stretch.range, maker, levels_.nodes());
      const std::span<std::byte> place(data + part.begin * width, part.size() * width);
      if (maker != own_node()) {
        const int peer = stretch.holders[std::size_t(maker)];
        send_values(own, {part.begin - start, part.end - start}, peer, values);
        results.receive(peer, place);
        continue;
      }
      awaited.push_back(await(levels_, sums, own_node(), part, stretch.holders, values));
      for (int node = 0; node < levels_.nodes(); ++node)
        if (node != own_node()) results.send(stretch.holders[std::size_t(node)], place);
    }
  values.go(*wire(), note);
  for (const Awaited& part : awaited)
    finish_awaited(sums, part, own, part.range.begin - start, own_node(), data + part.range.begin * width);
  results.go(*wire(), note);
}

// Each part of the input is added up on every node by the rank that has to do with the one that it is for.
void HierarchicalGroup::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  check_reduce_scatter(output, input, op, rank(), size());
  const at::Tensor from = host_values(input);
  const at::Tensor to = host_room(output);
  const CollectiveNote note = make_note(Collective::reduce_scatter, int(op), output);
  const SubtreeSums sums(output.scalar_type(), op, size());
  const auto elements = std::size_t(output.numel());
  const int local = topology().local_rank;
  run([&] {
    std::vector<int> takers;
    std::vector<RunValues> own;
    for (int each = 0; each < size(); ++each) {
      takers.push_back(levels_.partner(own_node(), each) - first_here());
      own.emplace_back(sums, levels_.runs(own_node()), takers.back() == local ? elements : 0);
    }
    const auto take = [&](int row, const std::vector<const std::byte*>& inputs, std::size_t first, std::size_t n) {
      own[std::size_t(row)].add_up(inputs, first_here(), first, n);
    };
    begin([&] { here_.collect_rows(note, start_of(from), elements, sums.width(), takers, take); });
    Moves moves;
    std::vector<int> holders;
    for (int node = 0; node < levels_.nodes(); ++node) holders.push_back(levels_.partner(node, rank()));
    const Awaited awaited = await(levels_, sums, own_node(), {0, elements}, holders, moves);
    for (int each = 0; each < size(); ++each)
      if (levels_.node_of(each) != own_node() && takers[std::size_t(each)] == local)
        send_values(own[std::size_t(each)], {0, elements}, each, moves);
    moves.go(*wire(), note);
    finish_awaited(sums, awaited, own[std::size_t(rank())], 0, own_node(), start_of(to));
  });
  if (!to.is_same(output)) output.detach().copy_(to);
}

void HierarchicalGroup::broadcast(const at::Tensor& tensor, int root) {
  check_dense(tensor, "broadcast");
  check_root(root, size());
  const at::Tensor dense = rank() == root ? host_values(tensor) : host_room(tensor);
  const CollectiveNote note = make_note(Collective::broadcast, root, dense);
  const std::size_t bytes = std::size_t(dense.numel()) * dense.element_size();
  const Shares shares{bytes, bytes <= kFewBytes ? 1 : topology().local_world};
  const int from = levels_.node_of(root);
  run([&] {
    begin([&] {
      if (from == own_node())
        here_.copy_from(note, root - first_here(), start_of(dense), bytes);
      else
        here_.meet(note);
    });
    if (topology().local_rank < shares.takers) send_from(from, note, start_of(dense), shares);
    if (from != own_node())
      here_.spread(note, start_of(dense), 1, shares);
    else if (shares.takers == 1)
      here_.meet(note);  // whoever has sent nothing hears here whether all have called the same
  });
  if (rank() != root && !dense.is_same(tensor)) tensor.detach().copy_(dense);
}

// Node `from` gives each of the others a part of each stretch, which these give to each other; of few bytes all. Who
// has nothing to send sends a message of nothing, so that all learn who calls something else.
void HierarchicalGroup::send_from(int from, const CollectiveNote& note, std::byte* data, const Shares& shares) {
  const bool are_few = shares.elements <= kFewBytes;
  const std::vector<Stretch> stretches =
      are_few ? std::vector<Stretch>{stretch_of_leaders(levels_, shares.elements)}
              : stretches_of(levels_, shares.elements, own_node(), topology().local_rank);
  Moves apart, together;
  for (const Stretch& stretch : stretches) {
    const auto part_for = [&](int node) {
      const int others = levels_.nodes() - 1, number = node < from ? node : node - 1;
      const ElementRange part = are_few ? stretch.range : part_of(stretch.range, number, others);
      return std::span<std::byte>(data + part.begin, part.size());
    };
    for (int node = 0; node < levels_.nodes(); ++node) {
      const int peer = stretch.holders[std::size_t(node)];
      if (node == own_node()) continue;
      if (from == own_node()) {
        apart.send(peer, part_for(node));
        apart.receive(peer, {});
      } else if (from == node) {
        apart.send(peer, {});
        apart.receive(peer, part_for(own_node()));
      } else {
        apart.send(peer, {});
        apart.receive(peer, {});
        if (are_few) continue;
        together.send(peer, part_for(own_node()));
        together.receive(peer, part_for(node));
      }
    }
  }
  apart.go(*wire(), note);
  if (!together.out.empty()) together.go(*wire(), note);
}

std::vector<at::Tensor> HierarchicalGroup::all_gather(const at::Tensor& tensor) {
  return gather_all(tensor, size(), [this](const auto& outputs, const at::Tensor& dense) { gather(outputs, dense); });
}

void HierarchicalGroup::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) {
  gather_into(output, input, rank(), size(),
              [this](const auto& outputs, const at::Tensor& dense) { gather(outputs, dense); });
}

// What a rank has goes to one rank of each other node, which gives it to those beside it.
void HierarchicalGroup::gather(const std::vector<at::Tensor>& outputs, const at::Tensor& dense) {
  const CollectiveNote note = make_note(Collective::all_gather, 0, dense);
  const std::size_t bytes = std::size_t(dense.numel()) * dense.element_size();
  std::vector<std::byte*> places;
  for (const at::Tensor& output : outputs) places.push_back(start_of(output));
  std::byte* const own = places[std::size_t(rank())];
  if (bytes > 0 && own != start_of(dense)) std::memcpy(own, start_of(dense), bytes);
  const std::size_t ranks_here = std::size_t(topology().local_world);
  std::vector<std::vector<int>> from_here(ranks_here), from_others(ranks_here);  // by the local rank that has them
  for (int each = 0; each < size(); ++each) {
    const auto local = std::size_t(levels_.partner(own_node(), each) - first_here());
    (levels_.node_of(each) == own_node() ? from_here : from_others)[local].push_back(each);
  }
  run([&] {
    begin([&] { here_.spread_rows(note, bytes, from_here, places); });
    Moves moves;
    for (int node = 0; node < levels_.nodes(); ++node)
      if (node != own_node()) moves.send(levels_.partner(node, rank()), {own, bytes});
    for (const int each : from_others[std::size_t(topology().local_rank)])
      moves.receive(each, {places[std::size_t(each)], bytes});
    moves.go(*wire(), note);
    here_.spread_rows(note, bytes, from_others, places);
  });
}

void HierarchicalGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  check_all_to_all(output, input, size());
  const at::Tensor from = host_values(input);
  const at::Tensor to = host_room(output);
  const CollectiveNote note = make_note(Collective::all_to_all, 0, input);
  const std::size_t part = std::size_t(input.numel()) / std::size_t(size()) * input.element_size();
  run([&] {
    const std::size_t here = std::size_t(first_here()) * part;
    begin([&] { here_.swap(note, start_of(from) + here, start_of(to) + here, part); });
    Moves moves;
    for (int step = 1; step < size(); ++step) {  // nobody is everybody's first
      const int peer = (rank() + step) % size();
      if (levels_.node_of(peer) == own_node()) continue;
      const std::size_t place = std::size_t(peer) * part;
      moves.send(peer, {start_of(from) + place, part});
      moves.receive(peer, {start_of(to) + place, part});
    }
    moves.go(*wire(), note);
  });
  if (!to.is_same(output)) output.detach().copy_(to);
}

void HierarchicalGroup::barrier() {
  const CollectiveNote note{.collective = Collective::barrier};
  run([&] {
    begin([&] { here_.meet(note); });
    if (topology().local_rank == 0) {
      Moves moves;
      for (int node = 0; node < levels_.nodes(); ++node) {
        if (node == own_node()) continue;
        moves.send(levels_.first(node), {});
        moves.receive(levels_.first(node), {});
      }
      moves.go(*wire(), note);
    }
    here_.meet(note);
  });
}

std::shared_ptr<Group> HierarchicalGroup::new_group(const std::vector<int>& ranks) {
  return part_over_nodes(*this, nodes_, *node_, ranks, hierarchical_group);
}

std::shared_ptr<Group> hierarchical_group(std::vector<int> nodes, int rank, std::shared_ptr<Wire> wire,
                                          std::shared_ptr<NodeGroup> node) {
  const Levels levels(nodes);
  if (levels.nodes() == 1 || levels.nodes() == levels.world())
    return flat_group(std::move(nodes), rank, std::move(wire), std::move(node));
  return std::make_shared<HierarchicalGroup>(std::move(nodes), rank, std::move(wire), std::move(node));
}

}  // namespace lockstep::comm
