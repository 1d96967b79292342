#include "lockstep/data/samplers/sliced.h"

#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/readers/table_text.h"
#include "lockstep/data/samplers/random.h"

namespace lockstep::data {

SlicedSampler::SlicedSampler(std::int64_t size, const SlicedSamplerOptions& options) : size_(size), options_(options) {
  if (options.slices < 1 || options.slices > std::numeric_limits<int>::max())
    throw UsageError("sliced sampler: " + std::to_string(options.slices) + " slices, at least 1 expected");
  if (size < options.slices)
    throw UsageError("sliced sampler: " + std::to_string(size) + " samples are too few for " +
                     std::to_string(options.slices) + " slices");
}

std::int64_t SlicedSampler::num_samples() const {
  return (size_ + options_.slices - 1) / options_.slices * options_.slices;
}

std::vector<std::int64_t> SlicedSampler::order(std::uint64_t epoch) const {
  const std::int64_t slices = options_.slices, each = num_samples() / slices;
  const RandomSampler shuffled(each, {.seed = options_.seed});
  std::vector<std::int64_t> order(static_cast<std::size_t>(num_samples()));
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    const RowRange rows = rows_of({.rank = int(slice), .world_size = int(slices)}, size_);
    // An order of its own for each slice and epoch.
    const std::vector<std::int64_t> within = shuffled.order(epoch * std::uint64_t(slices) + std::uint64_t(slice));
    for (std::int64_t place = 0; place < each; ++place)
      order[std::size_t(place * slices + slice)] = rows.first + within[std::size_t(place)];
  }
  return order;
}

}  // namespace lockstep::data
