#include "lockstep/comm/network/network_group.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "lockstep/comm/checks.h"
#include "lockstep/comm/gathering.h"
#include "lockstep/comm/host_memory.h"
#include "lockstep/comm/network/stream_wire.h"
#include "lockstep/comm/network/tcp_mesh.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/comm/reduce/reduce.h"
#include "lockstep/comm/shm/reduction_of.h"

namespace lockstep::comm {
namespace {

// So much each rank sends to all others at once: one trip. More is cut into a part for each rank: two trips, and the
// fewest bytes.
constexpr std::size_t kAtOnce = std::size_t(16) << 10;

std::byte* data_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }

// Where rank `rank`'s part of `elements` begins.
std::size_t cut(std::size_t elements, int rank, int size) { return elements * std::size_t(rank) / std::size_t(size); }

// They hold the node: another group's thread may be listening when this one's ends.
WireTies ties_of(const std::shared_ptr<Group>& node, std::chrono::milliseconds stall_warning, bool check_calls) {
  const std::shared_ptr<base::Member> member(node, &node->node().member);
  return {
      .stall_warning = stall_warning,
      .check_calls = check_calls,
      .step = [member] { return member->step(); },
      .check =
          [member] {
            member->check_abort_anywhere();
            member->show_life();
          },
      .failed =
          [member](const Failure& failure) {
            if (failure.rank == member->name_of(member->rank()))
              member->fail(failure.cause, failure.exit_code);
            else
              member->report(failure);
          },
      .away =
          [member](int change) { member->words().away.fetch_add(std::uint32_t(change), std::memory_order_relaxed); },
      .is_away = [member](int seat) { return member->page().ranks[seat].away.load(std::memory_order_relaxed) != 0; },
      .place_of = [member](int seat) { return member->place_of(seat); },
      .ask_where = [member](int seat) { return member->ask_where(seat); }};
}

// Who waits for this rank by the wire may ask while it waits at its node's page.
void answer_by(const std::shared_ptr<Wire>& wire, base::Member& member) {
  member.set_answer([weak = std::weak_ptr(wire)](const std::function<std::vector<int>()>& awaited) {
    if (const auto own = weak.lock()) own->answer(awaited);
  });
}

}  // namespace

Topology topology_of(const std::vector<int>& nodes, int rank) {
  const int own = nodes[std::size_t(rank)];
  const auto first = std::find(nodes.begin(), nodes.end(), own);
  const std::set<int> all(nodes.begin(), nodes.end());
  return {.rank = rank,
          .world = int(nodes.size()),
          .node = int(std::distance(all.begin(), all.find(own))),
          .nodes = int(all.size()),
          .local_rank = rank - int(first - nodes.begin()),
          .local_world = int(std::count(nodes.begin(), nodes.end(), own))};
}

NetworkGroup::NetworkGroup(std::vector<int> nodes, int rank, std::shared_ptr<Wire> wire,
                           std::shared_ptr<NodeGroup> node)
    : Group(topology_of(nodes, rank)), nodes_(std::move(nodes)), node_(std::move(node)), wire_(std::move(wire)) {}

// Gives each peer bytes_for(peer), and puts the `size` bytes that each has for this rank where `from` says.
template <class Bytes>
void NetworkGroup::swap(const CollectiveNote& note, Bytes&& bytes_for, const std::vector<std::byte*>& from,
                        std::size_t size) {
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int step = 1; step < this->size(); ++step) {  // nobody is everybody's first
    const int to = (rank() + step) % this->size();
    out.push_back({.peer = to, .bytes = bytes_for(to)});
    in.push_back({.peer = to, .bytes = {from[std::size_t(to)], size}});
  }
  wire_->exchange(note, out, in);
}

void NetworkGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  check_reducible(tensor, op, "all_reduce");
  if (!lies_in_host(tensor)) {
    const at::Tensor dense = host_values(tensor);
    all_reduce(dense, op);
    tensor.detach().copy_(dense);
    return;
  }
  const CollectiveNote note = make_note(Collective::all_reduce, int(op), tensor);
  const Reduction reduction = reduction_of(tensor.scalar_type(), op, size());
  std::byte* const data = data_of(tensor);
  const std::size_t width = tensor.element_size();
  const auto elements = std::size_t(tensor.numel());
  const bool at_once = elements * width <= kAtOnce;
  const auto part_of = [&](int rank) {
    const std::size_t begin = at_once ? 0 : cut(elements, rank, size());
    const std::size_t end = at_once ? elements : cut(elements, rank + 1, size());
    return std::span<std::byte>(data + begin * width, (end - begin) * width);
  };
  const std::span<std::byte> mine = part_of(rank());
  std::vector<std::byte> scratch(mine.size() * std::size_t(size()));
  std::vector<std::byte*> parts;
  for (int peer = 0; peer < size(); ++peer)
    parts.push_back(peer == rank() ? mine.data() : scratch.data() + std::size_t(peer) * mine.size());
  swap(
      note, [&](int peer) { return part_of(peer); }, parts, mine.size());
  std::byte* to = mine.data();
  if (!mine.empty()) tree_reduce(reduction, {parts.data(), size(), &to, 1}, 0, mine.size() / width);
  if (at_once) return;
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    out.push_back({.peer = peer, .bytes = mine});
    in.push_back({.peer = peer, .bytes = part_of(peer)});
  }
  wire_->exchange(note, out, in);
}

void NetworkGroup::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  check_reduce_scatter(output, input, op, rank(), size());
  const at::Tensor from = host_values(input);
  const at::Tensor to = new_host_room(output);
  const std::size_t part = std::size_t(output.numel()) * output.element_size();
  const auto part_of = [&](int rank) { return std::span(data_of(from) + std::size_t(rank) * part, part); };
  std::vector<std::byte> scratch(part * std::size_t(size()));
  std::vector<std::byte*> parts;
  for (int peer = 0; peer < size(); ++peer)
    parts.push_back(peer == rank() ? part_of(peer).data() : scratch.data() + std::size_t(peer) * part);
  swap(make_note(Collective::reduce_scatter, int(op), output), part_of, parts, part);
  std::byte* result = data_of(to);
  if (part > 0)
    tree_reduce(reduction_of(output.scalar_type(), op, size()), {parts.data(), size(), &result, 1}, 0,
                std::size_t(output.numel()));
  output.detach().copy_(to);
}

// The root sends each rank a part, and all ranks send theirs to each other: nobody sends all to all.
void NetworkGroup::broadcast(const at::Tensor& tensor, int root) {
  check_dense(tensor, "broadcast");
  check_root(root, size());
  const at::Tensor dense = rank() == root ? host_values(tensor) : host_room(tensor);
  const CollectiveNote note = make_note(Collective::broadcast, root, dense);
  const std::size_t bytes = std::size_t(dense.numel()) * dense.element_size();
  const bool at_once = bytes <= kAtOnce;
  const auto part_of = [&](int rank) {
    const std::size_t begin = at_once ? 0 : cut(bytes, rank, size());
    return std::span(data_of(dense) + begin, (at_once ? bytes : cut(bytes, rank + 1, size())) - begin);
  };
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int peer = 0; peer < size(); ++peer) {
    // Of the others a message of nothing, so that all learn who calls something else.
    if (peer == rank()) continue;
    out.push_back({.peer = peer, .bytes = rank() == root ? part_of(peer) : std::span<std::byte>()});
    in.push_back({.peer = peer, .bytes = peer == root ? part_of(rank()) : std::span<std::byte>()});
  }
  wire_->exchange(note, out, in);
  if (!at_once) {
    out.clear();
    in.clear();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      // The root has all of it.
      out.push_back({.peer = peer, .bytes = peer == root ? std::span<std::byte>() : part_of(rank())});
      in.push_back({.peer = peer, .bytes = rank() == root ? std::span<std::byte>() : part_of(peer)});
    }
    wire_->exchange(note, out, in);
  }
  if (rank() != root && !dense.is_same(tensor)) tensor.detach().copy_(dense);
}

std::vector<at::Tensor> NetworkGroup::all_gather(const at::Tensor& tensor) {
  return gather_all(tensor, size(), [this](const auto& outputs, const at::Tensor& dense) { gather(outputs, dense); });
}

void NetworkGroup::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) {
  gather_into(output, input, rank(), size(),
              [this](const auto& outputs, const at::Tensor& dense) { gather(outputs, dense); });
}

// Of a contiguous tensor into contiguous ones.
void NetworkGroup::gather(const std::vector<at::Tensor>& outputs, const at::Tensor& dense) {
  const std::size_t bytes = std::size_t(dense.numel()) * dense.element_size();
  std::vector<std::byte*> parts;
  for (const at::Tensor& output : outputs) parts.push_back(data_of(output));
  if (bytes > 0 && parts[std::size_t(rank())] != data_of(dense))
    std::memcpy(parts[std::size_t(rank())], data_of(dense), bytes);
  swap(
      make_note(Collective::all_gather, 0, dense), [&](int) { return std::span(data_of(dense), bytes); }, parts, bytes);
}

void NetworkGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  check_all_to_all(output, input, size());
  const at::Tensor from = host_values(input);
  const at::Tensor to = new_host_room(output);
  const std::size_t part = std::size_t(input.numel()) / std::size_t(size()) * input.element_size();
  std::vector<std::byte*> parts;
  for (int peer = 0; peer < size(); ++peer) parts.push_back(data_of(to) + std::size_t(peer) * part);
  const auto part_of = [&](int rank) { return std::span(data_of(from) + std::size_t(rank) * part, part); };
  if (part > 0) std::memcpy(parts[std::size_t(rank())], part_of(rank()).data(), part);
  swap(make_note(Collective::all_to_all, 0, input), part_of, parts, part);
  output.detach().copy_(to);
}

void NetworkGroup::barrier() {
  swap(
      {.collective = Collective::barrier}, [](int) { return std::span<std::byte>(); },
      std::vector<std::byte*>(std::size_t(size())), 0);
}

bool NetworkGroup::abort(const std::string& cause, int exit_code) {
  const bool first = node_->abort(cause, exit_code);
  wire_->abort({.rank = wire_->name_of(rank()), .cause = cause, .exit_code = exit_code});
  return first;
}

std::shared_ptr<Group> NetworkGroup::new_group(const std::vector<int>& ranks) {
  return part_over_nodes(*this, nodes_, *node_, ranks, flat_group);
}

std::shared_ptr<Group> flat_group(std::vector<int> nodes, int rank, std::shared_ptr<Wire> wire,
                                  std::shared_ptr<NodeGroup> node) {
  return std::make_shared<NetworkGroup>(std::move(nodes), rank, std::move(wire), std::move(node));
}

std::shared_ptr<Group> part_over_nodes(Group& whole, const std::vector<int>& nodes, NodeGroup& node,
                                       const std::vector<int>& ranks, const MakeGroup& make) {
  agree_on_ranks(whole, ranks);
  const int rank = whole.rank(), first = rank - whole.topology().local_rank;  // of this node's
  std::vector<int> here, nodes_of_part;
  for (const int member : ranks) {
    nodes_of_part.push_back(nodes[std::size_t(member)]);
    if (nodes_of_part.back() == nodes[std::size_t(rank)]) here.push_back(member - first);
  }
  const auto mine = std::find(ranks.begin(), ranks.end(), rank);
  std::shared_ptr<Group> group;
  or_abort(whole, [&] {
    std::shared_ptr<NodeGroup> beside;  // this rank in the part
    if (!here.empty()) beside = node.new_node_group(here);
    group = beside;
    // On one node this group is there because a network was asked for.
    const bool by_memory = here.size() == ranks.size() && (whole.topology().nodes > 1 || ranks.size() == 1);
    if (mine == ranks.end() || by_memory) return;
    base::Member& member = beside->node().member;
    std::shared_ptr<Wire> wire =
        whole.wire()->part(ranks, ties_of(beside, member.stall_warning(), member.compares_calls()));
    answer_by(wire, member);
    group = make(std::move(nodes_of_part), int(mine - ranks.begin()), std::move(wire), std::move(beside));
  });
  return group;
}

std::shared_ptr<Group> join_network(const MeshPlace& place, std::shared_ptr<NodeGroup> node, const MakeStreams& streams,
                                    const MakeGroup& make) {
  Mesh mesh = make_mesh(place);
  std::vector<int> nodes;
  for (const MeshPeer& peer : mesh.peers) nodes.push_back(peer.node);
  base::Member& member = node->node().member;
  const int first_rank = place.rank - place.local_rank;
  std::unique_ptr<Streams> made = streams(mesh);
  const std::shared_ptr<Wire> wire = std::make_shared<StreamWire>(
      std::move(mesh),
      StreamWire::Settings{
          .rank = place.rank, .timeout = place.timeout, .ties = ties_of(node, place.stall_warning, place.check_calls)},
      std::move(made));
  answer_by(wire, member);
  // A part listens, and tells, where its whole does. What is a part of this group may outlive it.
  if (member.whole().page == nullptr)
    member.set_abroad({.first_rank = first_rank,
                       .listen =
                           [weak = std::weak_ptr(wire)] {
                             if (const auto outer = weak.lock()) outer->listen();
                           },
                       .tell =
                           [weak = std::weak_ptr(wire)](const Failure& failure) {
                             if (const auto outer = weak.lock()) outer->abort(failure);
                           },
                       .grace = 3 * StreamWire::word_time(place.timeout)});
  return make(std::move(nodes), place.rank, wire, std::move(node));
}

}  // namespace lockstep::comm
