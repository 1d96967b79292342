#include "lockstep/parallel/bucket_tuner.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/parallel/bucket_trials.h"

namespace lockstep::parallel {
namespace {

std::vector<std::size_t> bytes_of(const NamedTensors& parameters) {
  std::vector<std::size_t> bytes;
  for (const auto& [name, tensor] : parameters) bytes.push_back(tensor.nbytes());
  return bytes;
}

void check_alone(const BucketOptions& options) {
  if (options.bucket_cap_mb || options.first_bucket_mb || !options.bucket_cap_mb_list.empty())
    throw UsageError("data parallel: buckets.autotune beside a size of buckets; give one of them");
}

std::string text_of(const std::vector<BucketTrial>& tried, std::size_t chosen) {
  std::ostringstream text;
  text << "lockstep: hint: buckets of " << tried[chosen].bucket_cap_mb << " MiB from now on; backward took";
  for (const BucketTrial& trial : tried)
    text << (&trial == tried.data() ? " " : ", ") << trial.seconds * 1e3 << " ms with " << trial.bucket_cap_mb;
  return text.str() + "\n";
}

}  // namespace

BucketTuner::BucketTuner(const NamedTensors& parameters, std::shared_ptr<comm::Group> group,
                         const DataParallelOptions& options, StepClock& clock)
    : group_(std::move(group)) {
  if (!options.buckets.autotune) {
    senders_.push_back(std::make_unique<BucketSender>(parameters, group_, options, clock));
    return;
  }
  check_alone(options.buckets);
  sizes_ = trial_sizes(bytes_of(parameters));
  for (const double size : sizes_) {
    DataParallelOptions sized = options;
    sized.buckets = {.bucket_cap_mb = size};
    senders_.push_back(std::make_unique<BucketSender>(parameters, group_, sized, clock));
  }
  seconds_.resize(sizes_.size());
}

void BucketTuner::begin_pass(std::uint64_t pass) {
  if (!tries()) return;
  now_ = *trial_of(pass, senders_.size());
  begin_ = std::chrono::steady_clock::now();
}

void BucketTuner::end_pass(std::uint64_t pass) {
  if (!tries()) return;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin_;
  seconds_[now_].push_back(taken.count());
  if (!trial_of(pass + 1, senders_.size())) choose();
}

// Of the slowest rank, for which the others wait: so all choose the same.
void BucketTuner::choose() {
  const at::NoGradGuard no_grad;
  const at::Tensor medians = at::tensor(trial_medians(seconds_), at::kDouble);
  group_->all_reduce(medians, comm::ReduceOp::max);
  std::vector<double> agreed;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    agreed.push_back(medians[std::int64_t(i)].item<double>());
    tried_.push_back({sizes_[i], agreed.back()});
  }
  const std::size_t chosen = fastest(agreed);
  std::unique_ptr<BucketSender> stays = std::move(senders_[chosen]);
  senders_.clear();
  senders_.push_back(std::move(stays));
  now_ = 0;
  if (group_->rank() == 0) base::Outlet::console(STDERR_FILENO).offer(text_of(tried_, chosen));
}

}  // namespace lockstep::parallel
