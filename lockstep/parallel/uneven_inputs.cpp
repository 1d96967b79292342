#include "lockstep/parallel/uneven_inputs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/parallel/normalize_on_device.h"
#include "lockstep/parallel/normalize_over_ranks.h"

namespace lockstep::parallel {
namespace {

std::string text_of(UnevenInputs::Pass pass, std::int64_t detail) {
  const std::string number = std::to_string(detail);
  switch (pass) {
    case UnevenInputs::Pass::forward:
      return "a forward pass";
    case UnevenInputs::Pass::backward:
      return "a backward pass";
    case UnevenInputs::Pass::statistics:
      return "the forward of a SyncBatchNorm of " + number + " channels";
    case UnevenInputs::Pass::statistics_gradient:
      return "the backward of a SyncBatchNorm of " + number + " channels";
    case UnevenInputs::Pass::device_statistics:
      return "the forward of a SyncBatchNorm of " + std::to_string(DeviceNorm::of_number(detail).channels) +
             " channels on a device";
    case UnevenInputs::Pass::device_statistics_gradient:
      return "the backward of a SyncBatchNorm of " + std::to_string(DeviceNorm::of_number(detail).channels) +
             " channels on a device";
    case UnevenInputs::Pass::joinable:
      return "the collectives of joinable " + number;
    default:
      return "a step";
  }
}

// Each rank has a group of its own, also where ranks are threads.
class RunningJoins {
 public:
  void add(const comm::Group& group, UnevenInputs* inputs) {
    const std::lock_guard lock(mutex_);
    if (!joins_.emplace(&group, inputs).second) throw UsageError("data parallel: join() within join()");
    count_.store(joins_.size());
  }
  void remove(const comm::Group& group) {
    const std::lock_guard lock(mutex_);
    joins_.erase(&group);
    count_.store(joins_.size());
  }
  UnevenInputs* find(const comm::Group& group) const {
    if (count_.load(std::memory_order_relaxed) == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = joins_.find(&group);
    return found == joins_.end() ? nullptr : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const comm::Group*, UnevenInputs*> joins_;
  std::atomic<std::size_t> count_ = 0;
};

RunningJoins& running_joins() {
  static RunningJoins joins;
  return joins;
}

}  // namespace

UnevenInputs::UnevenInputs(std::shared_ptr<comm::Group> group, const JoinOptions& options, StepClock* clock,
                           at::Device device)
    : group_(std::move(group)),
      options_(options),
      clock_(clock),
      device_(device),
      has_inputs_(std::size_t(group_->size()), true),
      ranks_left_(group_->size()) {
  for (Joinable* const joinable : options_.joinables) {
    if (&joinable->join_process_group() != group_.get())
      throw UsageError("join: the joinables have different groups; ranks tell each other in one what they do");
    hooks_.push_back(joinable->join_hook(options_));
  }
  running_joins().add(*group_, this);
}

UnevenInputs::~UnevenInputs() { running_joins().remove(*group_); }

UnevenInputs* UnevenInputs::of(const comm::Group& group) { return running_joins().find(group); }

void UnevenInputs::run(const std::function<void()>& loop) {
  try {
    loop();
  } catch (const std::exception& error) {
    if (!ended_) group_->abort(error.what(), exit_code(error));
    throw;
  }
}

UnevenInputs::Told UnevenInputs::exchange(Pass mine, std::int64_t detail) {
  const at::NoGradGuard no_grad;
  const auto begin = std::chrono::steady_clock::now();
  const std::int64_t told[] = {std::int64_t(mine), detail};
  const std::vector<at::Tensor> all = group_->all_gather(at::tensor(at::ArrayRef<std::int64_t>(told), at::kLong));
  if (clock_ != nullptr) clock_->waited("inputs", begin);
  Told others;
  std::vector<bool> has_inputs(std::size_t(group_->size()));
  int left = 0, first = 0, without = -1;
  for (int rank = 0; rank < group_->size(); ++rank) {
    const auto* const theirs = all[std::size_t(rank)].const_data_ptr<std::int64_t>();
    const Told one{Pass(theirs[0]), theirs[1]};
    if (one.pass == Pass::none) {
      without = rank;
      continue;
    }
    if (left == 0) {
      others = one;
      first = rank;
    } else if (one != others) {
      throw Error("join: rank " + std::to_string(first) + " begins " + text_of(others.pass, others.detail) +
                  " and rank " + std::to_string(rank) + " " + text_of(one.pass, one.detail) +
                  "; each must do the same with each of its inputs");
    }
    ++left;
    source_ = rank;
    has_inputs[std::size_t(rank)] = true;
  }
  if (left > 0) {
    ranks_left_ = left;
    has_inputs_ = std::move(has_inputs);
  }
  if (options_.throw_on_early_termination && left > 0 && without >= 0) {
    ended_ = true;
    throw Error("join: rank " + std::to_string(without) + " has no more inputs, and throw_on_early_termination is set");
  }
  return others;
}

UnevenInputs::Pass UnevenInputs::follow() {
  for (;;) {
    const Told theirs = exchange(Pass::none, 0);
    if (theirs.pass == Pass::statistics)
      normalize_without_inputs(*group_, theirs.detail);
    else if (theirs.pass == Pass::statistics_gradient)
      normalize_backward_without_inputs(*group_, theirs.detail);
    else if (theirs.pass == Pass::device_statistics)
      normalize_without_inputs(*group_, DeviceNorm::of_number(theirs.detail), device_);
    else if (theirs.pass == Pass::device_statistics_gradient)
      normalize_backward_without_inputs(*group_, DeviceNorm::of_number(theirs.detail), device_);
    else if (theirs.pass == Pass::joinable)
      hooks_.at(std::size_t(theirs.detail))->main_hook(source_);
    else
      return theirs.pass;
  }
}

void UnevenInputs::end() {
  for (const auto& hook : hooks_) hook->post_hook(group_->rank() == source_);
  if (clock_ != nullptr) clock_->skip();
}

double UnevenInputs::correction() const {
  return options_.divide_by_initial_world_size ? 1 : double(group_->size()) / double(ranks_left_);
}

}  // namespace lockstep::parallel
