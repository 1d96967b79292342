#include "lockstep/parallel/slice_update.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/comm/or_abort.h"

namespace lockstep::parallel {
namespace {

static_assert(state::Layout::kBlock == optim::kBlock, "slices and norms share their blocks");

// What a slice and a part have in common; empty at the part's begin when that is nothing.
state::Slice common(const state::Slice& slice, const state::Slice& part) {
  const std::size_t begin = std::clamp(slice.begin, part.begin, part.end);
  return {begin, std::clamp(slice.end, begin, part.end)};
}

// An update waits for memory, of which several cores get more than one. Any cut at a block's edge has the same bits.
template <class Body>
void on_threads(const state::Slice& range, const Body& body) {
  constexpr std::size_t kWorthAThread = std::size_t(1) << 20;  // weights: a millisecond, for some 20 us
  const std::size_t most = (range.end - range.begin) / kWorthAThread;
  const std::size_t threads = std::min(most, std::size_t(at::get_num_threads()));
  if (threads <= 1) return body(range.begin, range.end);
  const std::size_t each = ((range.end - range.begin) / threads / optim::kBlock + 1) * optim::kBlock;
  const std::size_t mine = std::min(range.begin / optim::kBlock * optim::kBlock + each, range.end);
  std::vector<std::jthread> others;
  std::size_t begin = mine;
  try {
    for (; begin < range.end; begin += each) others.emplace_back(body, begin, std::min(begin + each, range.end));
  } catch (const std::system_error&) {  // there may be no more threads: this one takes the rest
    body(begin, range.end);
  }
  body(range.begin, mine);
}

// The first of what the ranks have found, each among the parameters that its node has gradients of.
std::size_t first_of_all(comm::Group& group, std::size_t found) {
  const at::Tensor first = at::full({1}, std::int64_t(found), at::kLong);
  comm::or_abort(group, [&] { group.all_reduce(first, comm::ReduceOp::min); });
  return std::size_t(first.item<std::int64_t>());
}

}  // namespace

SliceUpdate::SliceUpdate(FusedState& fused, comm::Group& group, const std::optional<EmaOptions>& ema)
    : fused_(fused),
      group_(group),
      ema_(ema),
      plan_(fused.state.layout(), slice_of(fused.state.layout().options().share)) {
  const state::Layout& layout = fused.state.layout();
  if (layout.options().copied) copied_plan_.emplace(layout, slice_of(layout.copied_share()));
}

void SliceUpdate::choose(const optim::Rules& rules) {
  plan_.choose(rules, fused_.step_counts());
  if (copied_plan_) copied_plan_->choose(rules, fused_.step_counts());
}

void SliceUpdate::set(const std::vector<bool>& used, float mean) {
  plan_.fill(pieces_, used);
  if (copied_plan_) copied_plan_->fill(copied_pieces_, used);
  mean_ = mean;
  clip(1, 0);
}

void SliceUpdate::clip(float gradient_scale, float max_value) {
  gradient_scale_ = gradient_scale;
  max_value_ = max_value;
}

// One more pass and barrier: each rank's blocks, then all blocks in tree order on every rank. One more barrier where
// some of the blocks come from other nodes.
double SliceUpdate::gradient_norm(double p) {
  const state::SharedState& state = fused_.state;
  const state::Layout& layout = state.layout();
  for (const state::Part& part : layout.parts()) {
    const std::size_t first = part.range.begin;
    const auto [begin, end] = common(slice_of(layout.options().share), part.range);
    double* sums = state.write_as<double>(layout.block_sums()) + first / optim::kBlock;
    optim::power_sums(arrays_of(part), begin - first, end - first, p, sums);
  }
  group_.node().member.barrier();
  if (layout.options().shares > 1) {
    if (group_.topology().local_rank == 0) fused_.nodes->shares()->share_block_sums(fused_.next_step());
    group_.node().member.barrier();
  }
  return optim::norm_of(state.read_as<double>(layout.block_sums()), layout.blocks(), p);
}

NonfiniteGradient SliceUpdate::first_nonfinite() const {
  const state::Layout& layout = fused_.state.layout();
  const std::vector<state::PlacedParameter>& parameters = layout.parameters();
  std::size_t found = parameters.size();
  std::optional<int> shard;
  for (std::size_t i = 0; i < parameters.size() && found == parameters.size(); ++i) {
    const state::PlacedParameter& parameter = parameters[i];
    // Sums of another share are another node's.
    const state::Slice here = common(layout.share(), {parameter.offset, parameter.offset + parameter.elements});
    for (const state::Part& part : layout.parts()) {
      const auto [begin, end] = common(here, part.range);
      const std::size_t first = begin - part.range.begin, last = end - part.range.begin;
      const optim::Arrays arrays = arrays_of(part);
      if (optim::first_nonfinite(arrays, first, last) == last) continue;
      found = i;
      shard = nonfinite_shard(arrays, first, last);
      break;
    }
  }
  if (layout.options().shares > 1) found = first_of_all(group_, found);
  if (found == parameters.size()) return {};
  return {parameters[found].spec.name, shard};
}

// On one node the summands are the shards; between nodes they are sums of a node's.
std::optional<int> SliceUpdate::nonfinite_shard(const optim::Arrays& arrays, std::size_t begin, std::size_t end) const {
  if (fused_.nodes) return {};
  for (int shard = 0; shard < arrays.slots; ++shard) {
    optim::Arrays one = arrays;
    one.gradients = arrays.gradients + shard;
    one.slots = 1;
    one.mean = 1;
    if (optim::first_nonfinite(one, begin, end) != end) return shard;
  }
  return {};
}

// One more pass and barrier, of rules that ask for norms over their parameter: each rank's blocks of it, then all in
// tree order. What is measured then is kept where the rest of the step needs no more than that.
void SliceUpdate::set_norms(optim::Stores stores) {
  const state::SharedState& state = fused_.state;
  const state::Layout& layout = state.layout();
  for (const auto& [part, range, parameter, rule] : pieces_) {
    const std::size_t first = part->range.begin / optim::kBlock;
    const optim::Arrays arrays = arrays_of(*part);
    const bool halves = optim::has_halves(rule, arrays);
    auto* const sums = state.write_as<optim::SquareSums>(layout.parameter_sums(parameter));
    for (std::size_t begin = range.begin, end; begin < range.end; begin = end) {
      const std::size_t block = begin / optim::kBlock;
      end = std::min(range.end, (block + 1) * optim::kBlock);
      sums[first + block - layout.blocks_of(parameter).begin] =
          halves ? optim::begin_update(rule, arrays, begin, end, stores) : optim::square_sums(rule, arrays, begin, end);
    }
  }
  group_.node().member.barrier();
  for (Piece& piece : pieces_) {
    const auto [begin, end] = layout.blocks_of(piece.parameter);
    piece.rule = optim::with_norms(piece.rule, state.read_as<optim::SquareSums>(layout.parameter_sums(piece.parameter)),
                                   end - begin);
  }
}

void SliceUpdate::update_pieces(const std::vector<Piece>& pieces, bool copied, optim::Stores stores) {
  const bool by_norms = fused_.state.layout().options().parameter_norms;
  for (const Piece& piece : pieces) {
    const optim::Arrays arrays = arrays_of(*piece.part, copied);
    const bool begun = by_norms && optim::has_halves(piece.rule, arrays);
    on_threads(piece.range, [&](std::size_t begin, std::size_t end) {
      (begun ? optim::finish_update : optim::update)(piece.rule, arrays, begin, end, stores);
    });
  }
}

// This rank's slice, piece by piece, and that of the copy, in which the same comes of the same.
void SliceUpdate::update() {
  const bool by_norms = fused_.state.layout().options().parameter_norms;
  const auto update_by = [&](optim::Stores stores) {
    stores_ = stores;
    if (by_norms) set_norms(stores);
    update_pieces(pieces_, /*copied=*/false, stores);
    update_pieces(copied_pieces_, /*copied=*/true, stores);
  };
  // To a device the weights go past the cache.
  if (!fused_.device.is_cpu() && fused_.state.layout().options().state_buffers > 1)
    return update_by(optim::Stores::streaming);
  // In place every line has just been read: there is nothing to spare.
  if (fused_.state.layout().options().state_buffers == 1) return update_by(optim::Stores::plain);
  optim::run_update(store_choice_, group_.topology().local_world, update_by, [&] {
    for (const Piece& piece : pieces_) optim::read_back(arrays_of(*piece.part), piece.range.begin, piece.range.end);
  });
}

// In place, as if nothing had been updated here.
void SliceUpdate::follow(const std::vector<state::Slice>& received) const {
  for (const state::Slice& range : received) {
    const state::Part& part = fused_.state.layout().part_at(range.begin);
    optim::Arrays arrays = arrays_of(part);
    if (arrays.to_bf16 == nullptr && arrays.to_average == nullptr) continue;
    arrays.from_weights = arrays.to_weights;
    on_threads({range.begin - part.range.begin, range.end - part.range.begin},
               [&](std::size_t begin, std::size_t end) { optim::update(optim::KeepRule{}, arrays, begin, end); });
  }
}

state::Slice SliceUpdate::slice_of(int share) const {
  const comm::Topology& place = group_.topology();
  return fused_.state.layout().slice_of_share(share, place.local_rank, place.local_world);
}

optim::Arrays SliceUpdate::arrays_of(const state::Part& part, bool copied) const {
  const state::SharedState& state = fused_.state;
  const state::Layout& layout = state.layout();
  const int from = int(state.committed().buffer);
  const int to = state.target(fused_.next_step());
  // In place (a rank that is alone) the kernel must see that it is: one mapping for both.
  const std::size_t first = part.range.begin;
  const auto source = [&](std::size_t offset) -> const float* {
    return (from == to ? state.write_as<float>(offset) : state.read_as<float>(offset)) + first;
  };
  const auto target = [&](std::size_t offset) { return state.write_as<float>(offset) + first; };
  optim::Arrays arrays;
  const FusedState::Gradients& gradients = fused_.gradients.at(first);
  arrays.gradients = gradients.summands.data();
  arrays.gradient_type = gradients.type == at::kBFloat16 ? optim::GradientType::bfloat16 : optim::GradientType::float32;
  arrays.slots = int(gradients.summands.size());
  arrays.mean = mean_;
  arrays.gradient_scale = gradient_scale_;
  arrays.max_value = max_value_;
  arrays.from_weights = source(layout.weights(from));
  arrays.to_weights = target(layout.weights(to));
  for (int array = 0; array < layout.options().optimizer_arrays; ++array) {
    arrays.from_state[array] = source(copied ? layout.copied_array(from, array) : layout.optimizer_array(from, array));
    arrays.to_state[array] = target(copied ? layout.copied_array(to, array) : layout.optimizer_array(to, array));
  }
  if (ema_) {
    arrays.from_average = source(layout.average(from));
    arrays.to_average = target(layout.average(to));
    arrays.averaging = averaging_at(*ema_, fused_.next_step());
    arrays.decay = ema_->decay;
  }
  if (part.bf16_copy) arrays.to_bf16 = state.write_as<std::uint16_t>(layout.bf16_copies(to)) + part.copies;
  return arrays;
}

}  // namespace lockstep::parallel
