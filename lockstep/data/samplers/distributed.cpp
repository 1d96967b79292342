#include "lockstep/data/samplers/distributed.h"

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/samplers/random.h"

namespace lockstep::data {
namespace {

std::shared_ptr<const Sampler> sampler_for(std::int64_t size, const DistributedSamplerOptions& options) {
  if (options.shuffle) return std::make_shared<RandomSampler>(size, RandomSamplerOptions{.seed = options.seed});
  return std::make_shared<SequentialSampler>(size);
}

}  // namespace

DistributedSampler::DistributedSampler(std::int64_t size, int num_replicas, int rank, DistributedSamplerOptions options)
    : DistributedSampler(sampler_for(size, options), num_replicas, rank, options.drop_last) {}

DistributedSampler::DistributedSampler(std::shared_ptr<const Sampler> sampler, int num_replicas, int rank,
                                       bool drop_last)
    : sampler_(std::move(sampler)), share_{num_replicas, rank, drop_last ? Remainder::drop : Remainder::pad} {
  num_samples();  // checks the share
}

void DistributedSampler::set_epoch(std::uint64_t epoch) {
  if (epoch != epoch_) share_.consumed = 0;
  epoch_ = epoch;
}

std::vector<std::int64_t> DistributedSampler::indices() const { return share_of(sampler_->order(epoch_), share_); }

SamplerState DistributedSampler::state(std::int64_t taken) const {
  const std::int64_t all = num_samples();
  if (taken < 0 || taken > all) {
    throw UsageError("distributed sampler: " + std::to_string(taken) + " samples taken of " + std::to_string(all));
  }
  SamplerState state{.epoch = epoch_, .consumed = share_.consumed + taken * share_.num_replicas};
  if (taken == all) state = {.epoch = epoch_ + 1};
  state.order = order_hash(sampler_->order(state.epoch));
  return state;
}

void DistributedSampler::restore(const SamplerState& state) {
  if (order_hash(sampler_->order(state.epoch)) != state.order) {
    throw UsageError("distributed sampler: the state is of another order of epoch " + std::to_string(state.epoch) +
                     ": another set, seed or shuffling");
  }
  Share share = share_;
  share.consumed = state.consumed;
  share_size(sampler_->num_samples(), share);  // checks consumed
  share_ = share;
  epoch_ = state.epoch;
}

}  // namespace lockstep::data
