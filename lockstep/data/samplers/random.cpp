#include "lockstep/data/samplers/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

void append(std::vector<std::int64_t>& order, const at::Tensor& indices, std::int64_t count) {
  const std::int64_t* first = indices.const_data_ptr<std::int64_t>();
  order.insert(order.end(), first, first + count);
}

void require(bool right, const std::string& what) {
  if (!right) throw UsageError(what);
}

}  // namespace

RandomSampler::RandomSampler(std::int64_t size, const RandomSamplerOptions& options)
    : size_(size), options_(options), num_samples_(options.num_samples.value_or(size)) {
  require(size >= 0, "random sampler: a set cannot have " + std::to_string(size) + " samples");
  require(!options.num_samples || num_samples_ > 0,
          "random sampler: num_samples " + std::to_string(num_samples_) + ", at least 1 expected");
  require(size > 0 || num_samples_ == 0,
          "random sampler: " + std::to_string(num_samples_) + " samples wanted of a set that has none");
}

std::vector<std::int64_t> RandomSampler::order(std::uint64_t epoch) const {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(options_.seed + epoch);
  std::vector<std::int64_t> order;
  order.reserve(std::size_t(num_samples_));
  while (std::int64_t(order.size()) < num_samples_) {
    const std::int64_t left = num_samples_ - std::int64_t(order.size());
    if (options_.replacement) {  // Python draws 32 at a time, which makes no other numbers
      append(order, at::randint(size_, {left}, generator, at::kLong), left);
    } else {
      append(order, at::randperm(size_, generator, at::kLong), std::min(size_, left));
    }
  }
  return order;
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, const WeightedRandomSamplerOptions& options)
    : weights_(std::move(weights)), options_(options) {
  constexpr std::size_t kMost = std::size_t(1) << 24;
  require(weights_.size() <= kMost, "weighted sampler: " + std::to_string(weights_.size()) +
                                        " weights, torch.multinomial takes 16777216 at most");
  std::int64_t possible = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    require(std::isfinite(weights_[i]) && weights_[i] >= 0, "weighted sampler: weight " + std::to_string(weights_[i]) +
                                                                " of sample " + std::to_string(i) +
                                                                ", a number of at least 0 expected");
    possible += weights_[i] > 0;
  }
  const std::string wanted = std::to_string(options.num_samples);
  require(possible > 0, "weighted sampler: no weight is above 0");
  require(options.num_samples > 0, "weighted sampler: num_samples " + wanted + ", at least 1 expected");
  require(options.replacement || options.num_samples <= possible,
          "weighted sampler: " + wanted + " samples wanted without replacement, " + std::to_string(possible) +
              " have a weight above 0");
}

std::vector<std::int64_t> WeightedRandomSampler::order(std::uint64_t epoch) const {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(options_.seed + epoch);
  // from_blob takes no pointer to const; multinomial only reads.
  const at::Tensor weights =
      at::from_blob(const_cast<double*>(weights_.data()), {std::int64_t(weights_.size())}, at::kDouble);
  std::vector<std::int64_t> order;
  append(order, at::multinomial(weights, options_.num_samples, options_.replacement, generator), num_samples());
  return order;
}

}  // namespace lockstep::data
