#include "lockstep/state/layout.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <sstream>

#include "lockstep/state/hash.h"

namespace lockstep::state {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kPage = 4096;

std::size_t round_up(std::size_t value, std::size_t edge) { return (value + edge - 1) / edge * edge; }

// Arrays that begin at the same place of a page make loads wait for unrelated stores (4 KiB
// aliasing) and share cache sets: each array therefore begins nine lines further into its page.
constexpr std::size_t kStagger = 9 * kCacheLine;

std::size_t count(const std::vector<std::int64_t>& sizes) {
  std::size_t elements = 1;
  for (std::int64_t size : sizes) elements *= std::size_t(size);
  return elements;
}

}  // namespace

Layout::Layout(std::vector<TensorSpec> parameters, std::vector<TensorSpec> buffers, LayoutOptions options)
    : options_(options) {
  for (TensorSpec& spec : parameters) {
    const std::size_t elements = count(spec.sizes);
    parameters_.push_back({std::move(spec), elements_, elements});
    elements_ += round_up(elements, kCacheLine / sizeof(float));
  }
  for (TensorSpec& spec : buffers) {
    const std::size_t bytes = count(spec.sizes) * c10::elementSize(spec.dtype);
    buffers_.push_back({std::move(spec), module_buffer_bytes_, bytes});
    module_buffer_bytes_ += round_up(bytes, kCacheLine);
  }
  array_bytes_ = round_up(elements_ * sizeof(float), kPage) + kStagger;
  buffer_bytes_ = std::size_t(1 + options_.optimizer_arrays) * array_bytes_ + module_buffer_bytes_ +
                  round_up(sizeof(StepRecord), kCacheLine);
  slot_bytes_ = array_bytes_ + round_up(sizeof(ShardRecord), kCacheLine);
}

Slice Layout::slice(int rank, int ranks) const {
  const auto edge = [&](int r) { return std::min(elements_, blocks() * std::size_t(r) / std::size_t(ranks) * kBlock); };
  return {edge(rank), edge(rank + 1)};
}

std::uint64_t fingerprint(const TensorSpec& spec) {
  std::ostringstream text;
  text << spec.name << '\n' << int(spec.dtype);
  for (std::int64_t size : spec.sizes) text << ',' << size;
  text << ';';
  for (std::int64_t stride : spec.strides) text << ',' << stride;
  return hash64(text.str());
}

std::uint64_t Layout::fingerprint() const {
  std::ostringstream text;
  for (const PlacedParameter& parameter : parameters_) text << state::fingerprint(parameter.spec) << '\n';
  text << "buffers\n";
  for (const PlacedBuffer& buffer : buffers_) text << state::fingerprint(buffer.spec) << '\n';
  text << options_.shards << ',' << options_.optimizer_arrays << ',' << options_.state_buffers;
  return hash64(text.str());
}

}  // namespace lockstep::state
