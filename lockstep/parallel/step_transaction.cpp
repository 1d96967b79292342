#include "lockstep/parallel/step_transaction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/parallel/shard_record.h"

namespace lockstep::parallel {
namespace {

using base::Phase;

static_assert(state::Layout::kBlock == optim::kBlock, "slices and norms share their blocks");

// What a slice and a part have in common; empty at the part's begin when that is nothing.
state::Slice common(const state::Slice& slice, const state::Slice& part) {
  const std::size_t begin = std::clamp(slice.begin, part.begin, part.end);
  return {begin, std::clamp(slice.end, begin, part.end)};
}

state::ShardRecord record_of(const FusedState& fused, int slot) {
  return *fused.state.read_as<state::ShardRecord>(fused.state.layout().shard_record(slot));
}

std::string text_of(double norm, const std::string& parameter) {
  std::ostringstream text;
  text << "the norm of the gradients is " << norm << "; ";
  if (parameter.empty())
    text << "all gradients are finite, and this norm of them is too large for a number: take another norm_type";
  else
    text << "the first parameter whose gradient is not finite is '" << parameter << "'";
  return text.str();
}

}  // namespace

StepTransaction::StepTransaction(FusedState& fused, ShardSession& session, comm::Group& group)
    : fused_(fused),
      session_(session),
      group_(group),
      member_(group.node().member),
      plan_(fused.state.layout(), my_slice()),
      used_(fused.state.layout().parameters().size()) {}

void StepTransaction::run(const optim::Rules& rules, const optim::StepOptions& options) {
  session_.require_whole("step");  // of this rank alone, and to be mended: the others wait
  // Before anything that others take part in: what a rule throws leaves all as it was.
  plan_.choose(rules, fused_.step_counts());
  double norm = 0;
  or_abort(group_, [&] {
    gather(options.denominator);
    exchange();
  });
  set_mean();
  choose_pieces();
  or_abort(group_, [&] {
    if (options.max_norm > 0 || options.error_if_nonfinite) norm = gradient_norm(options.norm_type);
  });
  if (options.error_if_nonfinite && !std::isfinite(norm)) refuse(text_of(norm, first_nonfinite()));
  or_abort(group_, [&] {
    update(options.max_norm > 0 ? optim::clip_coefficient(options.max_norm, norm) : 1.0f, float(options.max_value));
    if (group_.topology().local_rank == 0) write_record(norm);
    vote();
    flip();
  });
  member_.set_phase(Phase::outside);
}

// This rank's part: its gradients are in their slots, and there is a buffer to write.
void StepTransaction::gather(std::optional<double> denominator) {
  session_.gather(denominator);
  member_.set_phase(Phase::gather);
  if (group_.topology().local_rank == 0) fused_.state.choose_target(fused_.next_step());
}

// Behind it, every rank can read the gradients of all shards. On one node they lie in memory that all ranks share, so
// nothing has to be sent: what is left of the exchange is to wait for everybody. A network would enter here. For its
// slice a rank would get what the slots of other nodes add up to, for the record what their shards tell, and shard 0's
// module buffers.
void StepTransaction::exchange() { member_.barrier(); }

// All read the same records.
void StepTransaction::set_mean() {
  const state::LayoutOptions& places = fused_.state.layout().options();
  const MeanWeight mean =
      mean_weight(places.slots, places.shards, [this](int slot) { return record_of(fused_, slot); });
  if (!mean.why_not.empty()) refuse(mean.why_not);
  mean_ = float(mean.value);
}

// By what all have read. A parameter that no shard has a gradient of keeps its weights, state and count of updates.
void StepTransaction::choose_pieces() {
  const state::Layout& layout = fused_.state.layout();
  const int slots = layout.options().slots;
  for (std::size_t i = 0; i < used_.size(); ++i) {
    int gradients = 0, frozen = 0;
    for (int slot = 0; slot < slots; ++slot) {
      const auto use = fused_.state.read_as<state::ParameterUse>(layout.uses(slot))[i];
      gradients += use == state::ParameterUse::gradient;
      frozen += use == state::ParameterUse::frozen;
    }
    if (frozen > 0 && frozen < slots)
      refuse("parameter '" + layout.parameters()[i].spec.name + "' is frozen on some ranks and not on others");
    used_[i] = gradients > 0;
  }
  pieces_ = plan_.pieces(used_);
}

// One more pass and barrier: each rank's blocks, then all blocks in tree order on every rank.
double StepTransaction::gradient_norm(double p) {
  const state::SharedState& state = fused_.state;
  const state::Layout& layout = state.layout();
  for (const state::Part& part : layout.parts()) {
    const std::size_t first = part.range.begin;
    const auto [begin, end] = common(my_slice(), part.range);
    double* sums = state.write_as<double>(layout.block_sums()) + first / optim::kBlock;
    optim::power_sums(arrays_of(part), begin - first, end - first, p, sums);
  }
  member_.barrier();
  return optim::norm_of(state.read_as<double>(layout.block_sums()), layout.blocks(), p);
}

// Every rank comes here, for all have read the same; nobody goes on to write gradients before all have looked.
void StepTransaction::refuse(const std::string& why) {
  or_abort(group_, [&] { member_.barrier(); });
  member_.set_phase(Phase::outside);
  throw Error("step " + std::to_string(fused_.next_step()) + ": " + why +
              ". Nothing was updated; optimizer.zero_grad() drops the gradients");
}

std::string StepTransaction::first_nonfinite() const {
  const state::Layout& layout = fused_.state.layout();
  for (const state::PlacedParameter& parameter : layout.parameters())
    for (const state::Part& part : layout.parts()) {
      const auto [begin, end] = common({parameter.offset, parameter.offset + parameter.elements}, part.range);
      const std::size_t last = end - part.range.begin;
      if (optim::first_nonfinite(arrays_of(part), begin - part.range.begin, last) != last) return parameter.spec.name;
    }
  return {};
}

// This rank's slice, piece by piece.
void StepTransaction::update(float gradient_scale, float max_value) {
  member_.set_phase(Phase::update);
  const auto update_by = [&](optim::Stores stores) {
    stores_ = stores;
    for (const Piece& piece : pieces_) {
      optim::Arrays arrays = arrays_of(*piece.part);
      arrays.gradient_scale = gradient_scale;
      arrays.max_value = max_value;
      optim::update(piece.rule, arrays, piece.range.begin, piece.range.end, stores);
    }
  };
  // In place every line has just been read: there is nothing to spare.
  if (fused_.state.layout().options().state_buffers == 1) return update_by(optim::Stores::plain);
  optim::run_update(store_choice_, group_.topology().local_world, update_by, [&] {
    for (const Piece& piece : pieces_) optim::read_back(arrays_of(*piece.part), piece.range.begin, piece.range.end);
  });
}

// The means over the shards, the counts of updates, shard 0's module buffers, by the rank that computes it, and what
// owners keep.
void StepTransaction::write_record(double gradient_norm) {
  const state::SharedState& state = fused_.state;
  const state::Layout& layout = state.layout();
  const int to = state.target(fused_.next_step());
  const int slots = layout.options().slots;
  const auto of_slot = [this](int slot) { return record_of(fused_, slot); };
  state::StepRecord record{.step = fused_.next_step(), .gradient_norm = gradient_norm};
  record.loss = mean_loss(slots, of_slot);
  for (int slot = 0; slot < slots; ++slot) record.samples += of_slot(slot).samples;
  if (record.samples == 0) record.loss = std::numeric_limits<double>::quiet_NaN();
  *state.write_as<state::StepRecord>(layout.step_record(to)) = record;
  std::uint64_t* const counts = state.write_as<std::uint64_t>(layout.step_counts(to));
  for (std::size_t i = 0; i < used_.size(); ++i) counts[i] = fused_.step_counts()[i] + (used_[i] ? 1 : 0);
  session_.write_module_buffers(state.write(layout.module_buffers(to)));
  fused_.kept.store(state, to);
  state.set_frozen_area(to, state.frozen_area(int(state.committed().buffer)));
}

void StepTransaction::vote() {
  member_.set_phase(Phase::vote);
  fused_.state.vote(fused_.next_step());
}

void StepTransaction::flip() {
  member_.set_phase(Phase::flip);
  fused_.flip();
  session_.restart();
}

state::Slice StepTransaction::my_slice() const {
  const comm::Topology& place = group_.topology();
  return fused_.state.layout().slice(place.local_rank, place.local_world);
}

optim::Arrays StepTransaction::arrays_of(const state::Part& part) const {
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
  arrays.gradients = fused_.slots.at(first).data();
  arrays.gradient_type = part.gradients == at::kBFloat16 ? optim::GradientType::bfloat16 : optim::GradientType::float32;
  arrays.slots = layout.options().slots;
  arrays.mean = mean_;
  arrays.from_weights = source(layout.weights(from));
  arrays.to_weights = target(layout.weights(to));
  for (int array = 0; array < layout.options().optimizer_arrays; ++array) {
    arrays.from_state[array] = source(layout.optimizer_array(from, array));
    arrays.to_state[array] = target(layout.optimizer_array(to, array));
  }
  if (part.bf16_copy) arrays.to_bf16 = state.write_as<std::uint16_t>(layout.bf16_copies(to)) + part.copies;
  return arrays;
}

}  // namespace lockstep::parallel
