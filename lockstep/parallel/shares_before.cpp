#include "lockstep/parallel/shares_before.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/comm/network/wire.h"
#include "lockstep/parallel/held_shares.h"
#include "lockstep/parallel/node_exchange.h"
#include "lockstep/parallel/share_exchange.h"

namespace lockstep::parallel {
namespace {

std::uint64_t filled_already(state::SharedState&) { return 0; }

// In which buffer a state has a step that it has committed, or the one before that.
int buffer_of(const state::SharedState& state, std::uint64_t step) {
  const base::Commit now = state.committed();
  if (now.step == step) return int(now.buffer);
  const state::Layout& layout = state.layout();
  for (int buffer = 0; buffer < layout.options().state_buffers; ++buffer)
    if (buffer != int(now.buffer) && state.read_as<state::StepRecord>(layout.step_record(buffer))->step == step)
      return buffer;
  throw Error("a node has a share of the optimizer's state of step " + std::to_string(now.step) +
              " only, and the job goes on from step " + std::to_string(step));
}

// Where element 0 of an array would be, in a layout that has this share of it, or a copy.
std::size_t place_of(const state::Layout& layout, int share, int buffer, int array) {
  if (share == layout.options().share) return layout.optimizer_array(buffer, array);
  return layout.copied_array(buffer, array);
}

// Moves a state's parts to rank 0, which may have some itself.
class Mover {
 public:
  explicit Mover(comm::Group& group) : group_(group), leaders_(leaders_of(group)) {}

  /// From a node, which has them at `from`, to `to` on rank 0.
  void move(int node, std::span<const std::byte> from, std::span<std::byte> to) {
    const comm::Topology& place = group_.topology();
    if (place.local_rank != 0) return;
    if (node == 0 && place.rank == 0)
      std::ranges::copy(from, to.begin());
    else if (place.rank == 0 && !to.empty())
      in_.push_back({leaders_[std::size_t(node)], to});
    else if (place.node == node && !from.empty())
      out_.push_back({0, from});
  }
  void finish() {
    if (!out_.empty() || !in_.empty()) group_.wire()->exchange(note_of_step(0), out_, in_);
  }

 private:
  comm::Group& group_;
  const std::vector<int> leaders_;
  std::vector<comm::Outgoing> out_;
  std::vector<comm::Incoming> in_;
};

// The committed step of each node, by node. Collective.
std::vector<std::uint64_t> steps_by_node(comm::Group& group, std::uint64_t mine) {
  std::vector<std::uint64_t> steps(std::size_t(group.topology().nodes));
  const std::vector<int> leaders = leaders_of(group);
  const std::vector<std::string> all =
      comm::all_gather_bytes(group, std::string(reinterpret_cast<const char*>(&mine), sizeof mine));
  for (std::size_t node = 0; node < steps.size(); ++node)
    std::memcpy(&steps[node], all[std::size_t(leaders[node])].data(), sizeof mine);
  return steps;
}

// Of the shares that these nodes hold. Of what all nodes have, as a node has it that stands at the step: the others may
// have made the next one, or not have taken over an edit.
WholeState bring_together(comm::Group& group, const state::Layout& wanted, const std::string& name,
                          const std::vector<state::HeldState>& nodes, const std::vector<int>& holders) {
  const comm::Topology& place = group.topology();
  const state::HeldState& one = nodes[std::size_t(holders.front())];
  const auto is_of_it = [&](int node) { return are_of_one(nodes[std::size_t(node)], one); };
  const state::Layout of_all = wanted.with_share(0, one.shares, one.copied);
  std::optional<state::SharedState> mine;
  if (is_of_it(place.node))
    mine.emplace(group.node(), wanted.with_share(nodes[std::size_t(place.node)].share, one.shares, one.copied),
                 filled_already, name);
  const std::vector<std::uint64_t> steps = steps_by_node(group, mine ? mine->committed().step : 0);
  int from = holders.front();
  for (int node = 0; node < place.nodes; ++node)
    if (is_of_it(node) && steps[std::size_t(node)] < steps[std::size_t(from)]) from = node;
  WholeState whole{.step = steps[std::size_t(from)], .beside_optimizer = {}, .frozen = {}, .arrays = {}};
  const bool first = place.rank == 0;
  const int buffer = mine ? buffer_of(*mine, whole.step) : 0;
  const auto bytes_at = [&](std::size_t offset, std::size_t bytes) {
    return mine ? std::span<const std::byte>(mine->read(offset), bytes) : std::span<const std::byte>();
  };
  Mover mover(group);
  for (std::size_t range = 0; range < whole.beside_optimizer.size(); ++range) {
    const state::Slice there = mine ? mine->layout().beside_optimizer(buffer)[range] : state::Slice{};
    const state::Slice here = of_all.beside_optimizer(0)[range];
    if (first) whole.beside_optimizer[range].resize(here.end - here.begin);
    mover.move(from, bytes_at(there.begin, there.end - there.begin), whole.beside_optimizer[range]);
  }
  if (first) whole.frozen.resize(of_all.frozen_bytes());
  mover.move(from, bytes_at(mine ? mine->layout().frozen_area(mine->frozen_area(buffer)) : 0, of_all.frozen_bytes()),
             whole.frozen);
  const int arrays = of_all.options().optimizer_arrays;
  if (first) whole.arrays.assign(std::size_t(arrays), std::vector<float>(of_all.elements()));
  for (int share = 0; share < one.shares; ++share)
    for (int array = 0; array < arrays; ++array) {
      const auto [begin, end] = of_all.share(share);
      const std::size_t there = mine ? place_of(mine->layout(), share, buffer, array) + begin * sizeof(float) : 0;
      std::span<float> room;
      if (first) room = std::span(whole.arrays[std::size_t(array)]).subspan(begin, end - begin);
      mover.move(holders[std::size_t(share)], bytes_at(there, (end - begin) * sizeof(float)),
                 std::as_writable_bytes(room));
    }
  mover.finish();
  return whole;
}

}  // namespace

std::uint64_t fill_with(WholeState whole, state::SharedState& fresh) {
  const state::Layout& layout = fresh.layout();
  for (std::size_t range = 0; range < whole.beside_optimizer.size(); ++range)
    std::ranges::copy(whole.beside_optimizer[range], fresh.write(layout.beside_optimizer(0)[range].begin));
  std::ranges::copy(whole.frozen, fresh.write(layout.frozen_area(0)));
  if (layout.options().shares > 1)
    fresh.whole_arrays() = std::move(whole.arrays);
  else
    for (std::size_t array = 0; array < whole.arrays.size(); ++array)
      std::ranges::copy(whole.arrays[array], fresh.write_as<float>(layout.optimizer_array(0, int(array))));
  return whole.step;
}

SharesBefore take_shares(comm::Group& group, const state::Layout& layout, const std::string& name) {
  const std::vector<state::HeldState> nodes = held_by_nodes(group, name);
  SharesBefore before{.why = why_not_in_place(nodes), .brought_together = false, .whole = {}};
  if (before.why.empty()) return before;
  if (const std::vector<int> holders = holders_of_all(nodes); !holders.empty()) {
    before.brought_together = true;
    WholeState whole = bring_together(group, layout, name, nodes, holders);
    if (group.rank() == 0) before.whole = std::move(whole);
  }
  base::Node& node = group.node();
  node.member.barrier();  // nobody reads it any more
  if (group.topology().local_rank == 0) state::forget(node.segment, name);
  node.member.barrier();  // nobody looks for it before
  return before;
}

std::string text_of_shares(const SharesBefore& before, std::uint64_t step, bool restored) {
  if (before.why.empty()) return "";
  const std::string at = "step " + std::to_string(step);
  if (before.brought_together)
    return "zero1: the optimizer's state in memory is shared out anew (" + before.why + "): the job goes on from " + at;
  return "zero1: the state in memory is not whole (" + before.why + "): the job " +
         (restored ? "goes back to " + at + ", of its checkpoint" : "begins anew, for there is no checkpoint");
}

}  // namespace lockstep::parallel
