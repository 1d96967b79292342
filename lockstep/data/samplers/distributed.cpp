#include "lockstep/data/samplers/distributed.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <numeric>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {

DistributedSampler::DistributedSampler(std::int64_t size, int num_replicas, int rank, DistributedSamplerOptions options)
    : size_(size), num_replicas_(num_replicas), rank_(rank), options_(options) {
  if (size < 0) throw UsageError("distributed sampler: a set cannot have " + std::to_string(size) + " samples");
  if (num_replicas < 1 || rank < 0 || rank >= num_replicas) {
    throw UsageError("distributed sampler: rank " + std::to_string(rank) + " is not in 0 ... " +
                     std::to_string(num_replicas - 1) + " (num_replicas " + std::to_string(num_replicas) + ")");
  }
  num_samples_ = options.drop_last ? size / num_replicas : (size + num_replicas - 1) / num_replicas;
}

std::vector<std::int64_t> DistributedSampler::order() const {
  std::vector<std::int64_t> order(size_);
  std::iota(order.begin(), order.end(), 0);
  if (!options_.shuffle) return order;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(options_.seed + epoch_);
  const at::Tensor shuffled = at::randperm(size_, generator, at::kLong);
  const std::int64_t* first = shuffled.const_data_ptr<std::int64_t>();
  return {first, first + size_};
}

std::vector<std::int64_t> DistributedSampler::indices() const {
  const std::vector<std::int64_t> all = order();
  std::vector<std::int64_t> mine(num_samples_);
  // Entries past the end are the padding: the order begins again, as often as needed.
  for (std::int64_t i = 0; i < num_samples_; ++i) mine[i] = all[(rank_ + i * num_replicas_) % size_];
  return mine;
}

}  // namespace lockstep::data
