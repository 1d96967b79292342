#include "lockstep/state/layout.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <sstream>

#include "lockstep/state/hash.h"

namespace lockstep::state {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kBf16Bytes = 2;

std::size_t round_up(std::size_t value, std::size_t edge) { return (value + edge - 1) / edge * edge; }

// Arrays that begin at the same place of a page make loads wait for unrelated stores (4 KiB
// aliasing) and share cache sets: each array therefore begins nine lines further into its page.
constexpr std::size_t kStagger = 9 * kCacheLine;

std::size_t count(const std::vector<std::int64_t>& sizes) {
  std::size_t elements = 1;
  for (std::int64_t size : sizes) elements *= std::size_t(size);
  return elements;
}

// Each tensor on a cache line of its own; adds up what they take.
std::vector<PlacedBuffer> one_after_the_other(std::vector<TensorSpec> specs, std::size_t& total) {
  std::vector<PlacedBuffer> placed;
  for (TensorSpec& spec : specs) {
    const std::size_t bytes = count(spec.sizes) * c10::elementSize(spec.dtype);
    placed.push_back({std::move(spec), total, bytes});
    total += round_up(bytes, kCacheLine);
  }
  return placed;
}

}  // namespace

Layout::Layout(std::vector<TensorSpec> parameters, std::vector<TensorSpec> buffers, LayoutOptions options,
               std::vector<TensorSpec> frozen)
    : options_(options) {
  place(std::move(parameters));
  buffers_ = one_after_the_other(std::move(buffers), module_buffer_bytes_);
  frozen_ = one_after_the_other(std::move(frozen), frozen_bytes_);
  const auto array_bytes = [](std::size_t bytes) { return round_up(bytes, kPage) + kStagger; };
  array_bytes_ = array_bytes(elements_ * sizeof(float));
  copy_bytes_ = bf16_elements_ > 0 ? array_bytes(bf16_elements_ * kBf16Bytes) : 0;
  content_bytes_ = std::size_t(1 + options_.optimizer_arrays) * array_bytes_ + copy_bytes_ + module_buffer_bytes_ +
                   round_up(sizeof(StepRecord), kCacheLine);
  buffer_bytes_ = content_bytes_ + kCacheLine;
  static_assert(sizeof(ShardRecord) <= kRecordBytes && kRecordBytes % kCacheLine == 0);
  const Part& last = parts_.back();
  slot_bytes_ =
      array_bytes(last.offset + (elements_ - last.range.begin) * c10::elementSize(last.gradients)) + kRecordBytes;
}

// The parameters stay in their order, their places do not: those with a copy come first, up to a block edge.
void Layout::place(std::vector<TensorSpec> specs) {
  for (TensorSpec& spec : specs) {
    const std::size_t elements = count(spec.sizes);
    parameters_.push_back({std::move(spec), 0, elements});
  }
  const auto place_those = [&](bool bf16) {
    for (PlacedParameter& parameter : parameters_) {
      if (parameter.spec.bf16 != bf16) continue;
      parameter.offset = elements_;
      elements_ += round_up(parameter.elements, kCacheLine / (bf16 ? kBf16Bytes : sizeof(float)));
    }
  };
  place_those(true);
  if (std::any_of(parameters_.begin(), parameters_.end(), [](const auto& p) { return !p.spec.bf16; }))
    elements_ = round_up(elements_, kBlock);
  bf16_elements_ = elements_;
  place_those(false);
  if (bf16_elements_ > 0) parts_.push_back({{0, bf16_elements_}, c10::ScalarType::BFloat16, 0});
  if (bf16_elements_ == 0 || bf16_elements_ < elements_)
    parts_.push_back({{bf16_elements_, elements_}, c10::ScalarType::Float, bf16_elements_ * kBf16Bytes});
}

c10::ScalarType Layout::gradient_type(std::size_t parameter) const {
  return parameters_[parameter].spec.bf16 ? c10::ScalarType::BFloat16 : c10::ScalarType::Float;
}

std::size_t Layout::gradient(int shard, std::size_t parameter) const {
  const std::size_t offset = parameters_[parameter].offset;
  if (parameters_[parameter].spec.bf16) return gradients(shard) + offset * kBf16Bytes;
  return gradients(shard) + bf16_elements_ * kBf16Bytes + (offset - bf16_elements_) * sizeof(float);
}

std::size_t Layout::frozen_area(int number) const {
  return round_up(block_sums() + blocks() * sizeof(double), kPage) + std::size_t(number) * frozen_bytes_;
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
  if (spec.bf16) text << ";bf16";
  return hash64(text.str());
}

std::uint64_t Layout::fingerprint() const {
  std::ostringstream text;
  for (const PlacedParameter& parameter : parameters_) text << state::fingerprint(parameter.spec) << '\n';
  text << "buffers\n";
  for (const PlacedBuffer& buffer : buffers_) text << state::fingerprint(buffer.spec) << '\n';
  text << "frozen\n";
  for (const PlacedBuffer& parameter : frozen_) text << state::fingerprint(parameter.spec) << '\n';
  text << options_.shards << ',' << options_.optimizer_arrays;
  return hash64(text.str());
}

}  // namespace lockstep::state
