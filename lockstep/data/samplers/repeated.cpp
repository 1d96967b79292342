#include "lockstep/data/samplers/repeated.h"

#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::data {

RepeatedSampler::RepeatedSampler(std::shared_ptr<const Sampler> order, std::int64_t size,
                                 const RepeatedSamplerOptions& options)
    : order_(std::move(order)), size_(size), repetitions_(options.repetitions) {
  if (!order_) throw UsageError("repeated sampler: no order: the pointer to it is null");
  if (repetitions_ < 1)
    throw UsageError("repeated sampler: " + std::to_string(repetitions_) + " repetitions, at least 1 expected");
  num_samples_ = options.num_samples.value_or(order_->num_samples());
  // A product of both might not fit.
  const std::int64_t needed = num_samples_ / repetitions_ + (num_samples_ % repetitions_ != 0);
  if (num_samples_ < 0 || needed > order_->num_samples())
    throw UsageError("repeated sampler: num_samples " + std::to_string(num_samples_) + ", 0 to " +
                     std::to_string(repetitions_) + " times " + std::to_string(order_->num_samples()) + " expected");
}

std::vector<std::int64_t> RepeatedSampler::order(std::uint64_t epoch) const {
  std::vector<std::int64_t> repeated;
  repeated.reserve(std::size_t(num_samples_));
  const std::vector<std::int64_t> once = order_->order(epoch);
  for (std::int64_t place = 0; place < num_samples_; ++place)
    repeated.push_back(once[std::size_t(place / repetitions_)] + place % repetitions_ * size_);
  return repeated;
}

}  // namespace lockstep::data
