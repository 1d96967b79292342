#include "lockstep/parallel/step_transaction.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/room.h"
#include "lockstep/base/shard_rank.h"
#include "lockstep/comm/call_log.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/parallel/shard_record.h"
#include "lockstep/state/hash.h"

namespace lockstep::parallel {
namespace {

using base::Phase;

// The record is hashed by its bytes, and comes back from files, which know one NaN: not those of different signs.
double one_nan(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value; }

std::string text_of(double norm, const NonfiniteGradient& found, int ranks, int shards, bool in_float16) {
  std::ostringstream text;
  text << "the norm of the gradients is " << norm << "; ";
  if (found.parameter.empty())
    text << "all gradients are finite, and this norm of them is too large for a number: take another norm_type";
  else
    text << "the first parameter whose gradient is not finite is '" << found.parameter << "'"
         << (in_float16 ? ", or is too large for float16, in which compression sends it between nodes" : "");
  if (found.shard)
    text << ", in shard " << *found.shard << ", of rank " << base::rank_of_shard(*found.shard, ranks, shards);
  return text.str();
}

// Of those on which it depends who waits for whom.
std::uint64_t hash_of(const optim::StepOptions& options) {
  const double told[] = {options.max_norm, options.norm_type, options.max_value, double(options.error_if_nonfinite),
                         options.loss_scale ? options.loss_scale->scale : 0};
  return state::hash64({reinterpret_cast<const char*>(told), sizeof told});
}

std::uint64_t asked_anywhere(const std::vector<const state::ShardRecord*>& records) {
  std::uint64_t asked = 0;
  for (const state::ShardRecord* record : records) asked |= record->asked;
  return asked;
}

// What the buffer that a step writes has held so far is nobody's any more, for the first ranks of all nodes have
// committed what came behind it. Its record is written behind the update, and told of that step until then. The node
// that is left of several may go back by it, too; one that never was one of several goes back to nothing.
void forget_target(const FusedState& fused) {
  const state::SharedState& state = fused.state;
  const int to = state.target(fused.next_step());
  if (to == int(state.committed().buffer)) return;  // in place
  state.write_as<state::StepRecord>(state.layout().step_record(to))->step = base::Commit::kNoStep;
}

// Behind the barrier no rank of any node needs another one for this step.
void leave_for_room(comm::Group& group) {
  or_abort(group, [&] {
    group.barrier();
    const base::Member& member = group.node().member;
    base::make_room(member.page(), member.generation());
    member.check_abort();
  });
}

}  // namespace

StepTransaction::StepTransaction(FusedState& fused, GradientSlots& slots, ShardSession& session, comm::Group& group,
                                 const DataParallelOptions& options, StepClock& clock)
    : fused_(fused),
      slots_(slots),
      session_(session),
      group_(group),
      member_(group.node().member),
      ema_(options.ema),
      in_float16_(fused.nodes != nullptr && options.compression == Compression::fp16),
      clock_(clock),
      slice_(fused, group, options.ema),
      node_check_(fused, group, options.verify_replicas_every),
      used_(fused.state.layout().parameters().size()) {
  const state::Layout& layout = fused.state.layout();
  for (int shard = 0; shard < layout.options().shards; ++shard) {
    records_.push_back(fused.state.read_as<state::ShardRecord>(layout.shard_record(shard)));
    uses_.push_back(fused.state.read_as<state::ParameterUse>(layout.uses(shard)));
  }
}

void StepTransaction::prepare(const optim::Rules& rules) {
  fused_.state.check_settled("step");
  session_.require_whole("step");
  slice_.choose(rules);
}

void StepTransaction::run(const optim::Rules& rules, const optim::StepOptions& options, bool has_inputs) {
  prepare(rules);
  double norm = 0;
  or_abort(group_, [&] {
    gather(rules, options, has_inputs);
    exchange();
  });
  const std::uint64_t asked = asked_anywhere(records_);
  should_stop_ = (asked & state::kAskedToStop) != 0;
  require_same_options();
  if (const std::string diverged = node_check_.find(records_); !diverged.empty()) refuse(diverged);
  mean_ = float(agreed_mean() / (options.loss_scale ? options.loss_scale->scale : 1));
  set_used();
  slice_.set(used_, mean_);
  const bool wants_norm = options.max_norm > 0 || options.error_if_nonfinite;
  or_abort(group_, [&] {
    if (wants_norm) norm = slice_.gradient_norm(options.norm_type);
  });
  if (options.error_if_nonfinite && !std::isfinite(norm))
    refuse(text_of(norm, slice_.first_nonfinite(), group_.size(), fused_.state.layout().options().shards, in_float16_));
  or_abort(group_, [&] {
    skipped_ = false;
    if (options.loss_scale)
      skip_overflow(*options.loss_scale,
                    wants_norm ? norm : slice_.gradient_norm(std::numeric_limits<double>::infinity()));
    slice_.clip(options.max_norm > 0 ? optim::clip_coefficient(options.max_norm, norm) : 1, float(options.max_value));
    member_.set_phase(Phase::update);
    slice_.update();
    if (const ShareExchange* const shares = fused_.nodes ? fused_.nodes->shares() : nullptr) {
      const std::uint64_t step = fused_.next_step();
      wait_for_others("weights", [&] { shares->share_weights(step, fused_.state.target(step)); });
      slice_.follow(shares->received());
    }
    if (group_.topology().local_rank == 0) write_record(norm);
    vote();
    flip();
  });
  member_.set_phase(Phase::outside);
  // Who is to stop as well has something to save; a save under way is not cut; other models may have to commit with
  // this.
  if (asked == state::kAskedToMakeRoom && !fused_.state.is_ahead()) leave_for_room(group_);
}

// This rank's part: its gradients are in their slots, and there is a buffer to write.
void StepTransaction::gather(const optim::Rules& rules, const optim::StepOptions& options, bool has_inputs) {
  session_.gather(options.denominator, hash_of(options), rules.options(), has_inputs);
  member_.set_phase(Phase::gather);
  node_check_.tell();
  if (group_.topology().local_rank == 0) fused_.state.choose_target(fused_.next_step());
}

// body() waits for the `what` of the others. Where there are none, looks at the clock would be most of its time.
template <class Body>
void StepTransaction::wait_for_others(const char* what, const Body& body) {
  const auto run = [&] { comm::logged(group_.call_log(), {.kind = "step", .detail_name = what, .detail = -1}, body); };
  if (group_.size() == 1) return run();
  const auto begin = std::chrono::steady_clock::now();
  run();
  clock_.waited(what, begin);
}

// Behind it, every rank can read what is to be added up of the gradients of all shards, and what all shards tell. On
// one node all of it lies in memory that the ranks share, so nothing has to be sent: what is left of the exchange is to
// wait for everybody. Waves were carried by the time that all of the node are there. Where gradients came behind theirs
// all read so, and exchange everything once more.
void StepTransaction::exchange() {
  wait_for_others("gradients", [&] {
    if (fused_.lane) {
      clock_.carried(fused_.lane->finish(fused_.next_step()));
    } else if (fused_.nodes) {
      member_.barrier();
      fused_.nodes->exchange(fused_.next_step());
    }
    const bool goes_back = fused_.nodes != nullptr || fused_.state.was_spread();
    if (goes_back && group_.topology().local_rank == 0) forget_target(fused_);
    member_.barrier();
    if (!fused_.lane) return;
    const bool again = std::ranges::any_of(records_, [](const auto* record) { return record->again != 0; });
    slots_.exchanged(again);
    if (!again) return;
    member_.barrier();
    fused_.nodes->exchange(fused_.next_step());
    member_.barrier();
  });
}

// All read the same records. Each rank updates its slice by its own rules, which nobody could tell afterwards.
void StepTransaction::require_same_options() {
  const state::ShardRecord& first = *records_.front();
  for (std::size_t shard = 1; shard < records_.size(); ++shard) {
    const state::ShardRecord& other = *records_[shard];
    if (other.options != first.options)
      refuse("the ranks gave step() different max_norm, norm_type, max_value, error_if_nonfinite or loss scales");
    if (other.rules != first.rules)
      refuse("rank " + std::to_string(base::rank_of_shard(int(shard), group_.size(), int(records_.size()))) +
             " has other options in param_groups() than rank 0, such as the learning rate (of a metric that is not the "
             "same on all ranks?)");
  }
}

double StepTransaction::agreed_mean() {
  const MeanWeight mean =
      mean_weight(int(records_.size()), [this](int shard) { return *records_[std::size_t(shard)]; });
  if (!mean.why_not.empty()) refuse(mean.why_not);
  return mean.value;
}

// By what all have read. A parameter that no shard has a gradient of keeps its weights, state and count of updates.
void StepTransaction::set_used() {
  for (std::size_t i = 0; i < used_.size(); ++i) {
    int gradients = 0, frozen = 0, unused = 0;
    for (const state::ParameterUse* uses : uses_) {
      gradients += uses[i] == state::ParameterUse::gradient;
      frozen += uses[i] == state::ParameterUse::frozen;
      unused += uses[i] == state::ParameterUse::none;
    }
    if (frozen > 0 && gradients + unused > 0)
      refuse("parameter '" + fused_.state.layout().parameters()[i].spec.name +
             "' is frozen on some ranks and not on others");
    used_[i] = gradients > 0;
  }
}

// All ranks have the same norm, so all skip. To keep every parameter is the update then, for the other buffer is to
// have them.
void StepTransaction::skip_overflow(const optim::LossScale& scale, double norm) {
  const std::string overflowed = std::isfinite(norm) ? "" : slice_.first_nonfinite().parameter;
  skipped_ = !overflowed.empty();
  if (skipped_) {
    used_.assign(used_.size(), false);
    slice_.set(used_, mean_);
  }
  scale.decided(overflowed);
}

// Every rank comes here, for all have read the same; nobody goes on to write gradients before all have looked.
void StepTransaction::refuse(const std::string& why) {
  or_abort(group_, [&] { member_.barrier(); });
  member_.set_phase(Phase::outside);
  throw Error("step " + std::to_string(fused_.next_step()) + ": " + why +
              ". Nothing was updated; optimizer.zero_grad() drops the gradients");
}

// The means over the shards, the counts of updates, shard 0's module buffers, by the rank that computes it, and what
// owners keep.
void StepTransaction::write_record(double gradient_norm) {
  const state::SharedState& state = fused_.state;
  const state::Layout& layout = state.layout();
  const int to = state.target(fused_.next_step());
  state::StepRecord record{.step = fused_.next_step(), .gradient_norm = gradient_norm, .skipped = skipped_ ? 1u : 0u};
  record.loss = mean_loss(int(records_.size()), [this](int shard) { return *records_[std::size_t(shard)]; });
  for (const state::ShardRecord* shard : records_) record.samples += shard->samples;
  if (record.samples == 0) record.loss = std::numeric_limits<double>::quiet_NaN();
  record.loss = one_nan(record.loss);
  record.gradient_norm = one_nan(record.gradient_norm);
  *state.write_as<state::StepRecord>(layout.step_record(to)) = record;
  const std::uint64_t* const before = fused_.step_counts();
  std::uint64_t* const counts = state.write_as<std::uint64_t>(layout.step_counts(to));
  for (std::size_t i = 0; i < used_.size(); ++i) counts[i] = before[i] + (used_[i] ? 1 : 0);
  if (group_.rank() == 0) {
    session_.write_module_buffers(state.write(layout.module_buffers(to)));
    fused_.kept.store(state, to);
  }
  if (fused_.nodes) fused_.nodes->share_rank_zeros(fused_.next_step(), to);
  if (ema_) fused_.average_buffers(to, *ema_);
  state.set_frozen_area(to, state.frozen_area(int(state.committed().buffer)));
}

void StepTransaction::vote() {
  member_.set_phase(Phase::vote);
  wait_for_others("votes", [&] { fused_.state.vote(fused_.next_step()); });
}

void StepTransaction::flip() {
  member_.set_phase(Phase::flip);
  fused_.flip();
  session_.restart();
}

}  // namespace lockstep::parallel
