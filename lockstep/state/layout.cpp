#include "lockstep/state/layout.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <tuple>

#include "lockstep/base/error.h"
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

std::size_t array_bytes(std::size_t bytes) { return round_up(bytes, kPage) + kStagger; }

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

// Piece `number` of `count` of a range that begins on a block edge; the pieces end on such edges, and cover it.
Slice cut(const Slice& range, int number, int count) {
  const std::size_t blocks = (range.end - range.begin + Layout::kBlock - 1) / Layout::kBlock;
  const auto edge = [&](int n) {
    return std::min(range.end, range.begin + blocks * std::size_t(n) / std::size_t(count) * Layout::kBlock);
  };
  return {edge(number), edge(number + 1)};
}

// What the parameters of a part have in common; in the order of the parts.
using Kind = std::tuple<bool, bool, int>;
Kind kind_of(const TensorSpec& spec) {
  return {!spec.bf16_copy, spec.gradients != c10::ScalarType::BFloat16, spec.group};
}

void check_gradients(const TensorSpec& spec) {
  if (spec.gradients != c10::ScalarType::Float && spec.gradients != c10::ScalarType::BFloat16)
    throw UsageError("parameter '" + spec.name + "': gradients kept as " + c10::toString(spec.gradients) +
                     ", must be Float or BFloat16");
}

// How many elements lie on a cache line of the parameter's narrowest array.
std::size_t elements_per_line(const TensorSpec& spec) {
  return kCacheLine / std::min(c10::elementSize(spec.gradients), spec.bf16_copy ? kBf16Bytes : sizeof(float));
}

std::size_t elements_of(const Part& part) { return part.range.end - part.range.begin; }
std::size_t gradient_bytes(const Part& part) { return elements_of(part) * c10::elementSize(part.gradients); }
std::size_t copied_elements(const Part& part) { return part.bf16_copy ? elements_of(part) : 0; }

}  // namespace

Layout::Layout(std::vector<TensorSpec> parameters, std::vector<TensorSpec> buffers, LayoutOptions options,
               std::vector<TensorSpec> frozen)
    : options_(std::move(options)) {
  place(std::move(parameters));
  first_sum_ = {0};
  for (std::size_t i = 0; options_.parameter_norms && i < parameters_.size(); ++i)
    first_sum_.push_back(first_sum_.back() + blocks_of(i).end - blocks_of(i).begin);
  buffers_ = one_after_the_other(std::move(buffers), module_buffer_bytes_);
  frozen_ = one_after_the_other(std::move(frozen), frozen_bytes_);
  const Part& last = parts_.back();
  const std::size_t copies = last.copies + copied_elements(last);
  array_bytes_ = array_bytes(elements_ * sizeof(float));
  copy_bytes_ = copies > 0 ? array_bytes(copies * kBf16Bytes) : 0;
  measure_buffers();
  static_assert(sizeof(ShardRecord) <= kRecordBytes && kRecordBytes % kCacheLine == 0);
  // Whole pages of uses: the next slot is to begin where in a page it would without any (kStagger).
  slot_bytes_ = array_bytes(last.offset + gradient_bytes(last)) + use_bytes() + kRecordBytes;
}

void Layout::measure_buffers() {
  std::size_t most = 0;
  for (int number = 0; number < options_.shares; ++number)
    most = std::max(most, share(number).end - share(number).begin);
  state_bytes_ = array_bytes(most * sizeof(float));
  content_bytes_ = named_bytes(0, options_.bytes.size());
  buffer_bytes_ = content_bytes_ + kCacheLine;
}

Layout Layout::with_share(int share, int shares, bool copied) const {
  Layout other = *this;
  other.options_.shares = shares;
  other.options_.share = share;
  other.options_.copied = copied;
  other.measure_buffers();
  return other;
}

// The parameters stay in their order, their places do not: those of one kind come together, up to a block edge.
void Layout::place(std::vector<TensorSpec> specs) {
  std::set<Kind> kinds;
  for (TensorSpec& spec : specs) {
    check_gradients(spec);
    kinds.insert(kind_of(spec));
    const std::size_t elements = count(spec.sizes);
    parameters_.push_back({std::move(spec), 0, elements});
  }
  for (const Kind& kind : kinds) {
    if (!parts_.empty()) parts_.back().range.end = elements_ = round_up(elements_, kBlock);
    Part part{.range = {elements_, elements_}};
    for (PlacedParameter& parameter : parameters_) {
      const TensorSpec& spec = parameter.spec;
      if (kind_of(spec) != kind) continue;
      part.group = spec.group;
      part.gradients = spec.gradients;
      part.bf16_copy = spec.bf16_copy;
      parameter.offset = elements_;
      elements_ += round_up(parameter.elements, elements_per_line(spec));
    }
    part.range.end = elements_;
    if (elements_of(part) > 0) parts_.push_back(part);
  }
  if (parts_.empty()) parts_.emplace_back();
  for (std::size_t i = 1; i < parts_.size(); ++i) {
    parts_[i].offset = parts_[i - 1].offset + gradient_bytes(parts_[i - 1]);
    parts_[i].copies = parts_[i - 1].copies + copied_elements(parts_[i - 1]);
  }
}

// A parameter without elements may lie behind the last part of its kind: then any will do.
const Part& Layout::part_of(std::size_t parameter) const { return part_at(parameters_[parameter].offset); }

const Part& Layout::part_at(std::size_t element) const {
  std::size_t part = parts_.size() - 1;
  while (part > 0 && element < parts_[part].range.begin) --part;
  return parts_[part];
}

std::size_t Layout::bf16_copy(int buffer, std::size_t parameter) const {
  const Part& part = part_of(parameter);
  return bf16_copies(buffer) + (part.copies + parameters_[parameter].offset - part.range.begin) * kBf16Bytes;
}

std::size_t Layout::step_counts(int buffer) const {
  return step_record(buffer) + round_up(sizeof(StepRecord), kCacheLine);
}

std::size_t Layout::named_bytes(int buffer, std::size_t index) const {
  std::size_t offset = step_counts(buffer) + round_up(parameters_.size() * sizeof(std::uint64_t), kCacheLine);
  for (std::size_t i = 0; i < index; ++i) offset += round_up(options_.bytes[i].size, kCacheLine);
  return offset;
}

// Whole pages of frozen areas and of sums: slots are to begin where in a page they would without any (kStagger).
std::size_t Layout::block_sums() const {
  return frozen_area(0) + round_up(std::size_t(options_.state_buffers) * frozen_bytes_, kPage);
}

Slice Layout::blocks_of(std::size_t parameter) const {
  const PlacedParameter& place = parameters_[parameter];
  return {place.offset / kBlock, (place.offset + place.elements + kBlock - 1) / kBlock};
}

Slice Layout::blocks_of_share(int number) const {
  const Slice range = share(number);
  return {range.begin / kBlock, (range.end + kBlock - 1) / kBlock};
}

std::size_t Layout::parameter_sums(std::size_t parameter) const {
  return block_sums() + (blocks() + 2 * first_sum_[parameter]) * sizeof(double);
}

std::size_t Layout::gradients(int slot) const {
  const std::size_t sums = (blocks() + 2 * first_sum_.back()) * sizeof(double);
  return block_sums() + round_up(sums, kPage) + std::size_t(slot) * slot_bytes_;
}

std::size_t Layout::gradient(int slot, std::size_t parameter) const {
  const Part& part = part_of(parameter);
  return gradients(slot) + part.offset +
         (parameters_[parameter].offset - part.range.begin) * c10::elementSize(part.gradients);
}

std::size_t Layout::use_bytes() const { return round_up(parameters_.size(), kPage); }

// Of a shard of this node in its slot; the others' lie one after the other, and so would those of this node.
std::size_t Layout::shard_record(int shard) const {
  const int slot = shard - options_.first_shard;
  if (0 <= slot && slot < options_.slots) return gradients(slot) + slot_bytes_ - kRecordBytes;
  return guests() + std::size_t(shard + 1) * (use_bytes() + kRecordBytes) - kRecordBytes;
}

std::size_t Layout::total_bytes() const {
  if (!is_spread()) return gradients(options_.slots);
  return guests() + std::size_t(options_.shards) * (use_bytes() + kRecordBytes);
}

// Each slot but one, and sums in float32 instead of the last, which may be narrower.
std::size_t Layout::most_bytes() const {
  return gradients(options_.shards - 1) + array_bytes_ + std::size_t(options_.shards) * (use_bytes() + kRecordBytes);
}

Slice Layout::slice(int rank, int ranks) const { return cut({0, elements_}, rank, ranks); }

Slice Layout::slice_of_share(int number, int rank, int ranks) const { return cut(share(number), rank, ranks); }

std::vector<Slice> Layout::common(int buffer) const {
  if (options_.shares == 1) return {Slice{weights(buffer), weights(buffer) + content_bytes_}};
  return beside_optimizer(buffer);
}

std::vector<Slice> Layout::beside_optimizer(int buffer) const {
  return {Slice{weights(buffer), optimizer_area(buffer)}, Slice{average(buffer), weights(buffer) + content_bytes_}};
}

std::uint64_t fingerprint(const TensorSpec& spec) {
  std::ostringstream text;
  text << spec.name << '\n' << int(spec.dtype);
  for (std::int64_t size : spec.sizes) text << ',' << size;
  text << ';';
  for (std::int64_t stride : spec.strides) text << ',' << stride;
  text << ';' << spec.group << ',' << int(spec.gradients) << ',' << spec.bf16_copy;
  return hash64(text.str());
}

std::uint64_t Layout::fingerprint() const {
  std::ostringstream text;
  for (const PlacedParameter& parameter : parameters_) text << state::fingerprint(parameter.spec) << '\n';
  text << "buffers\n";
  for (const PlacedBuffer& buffer : buffers_) text << state::fingerprint(buffer.spec) << '\n';
  text << "frozen\n";
  for (const PlacedBuffer& parameter : frozen_) text << state::fingerprint(parameter.spec) << '\n';
  text << "bytes\n";
  for (const NamedBytes& bytes : options_.bytes) text << bytes.size << ' ' << hash64(bytes.name) << '\n';
  text << options_.shards << ',' << options_.optimizer_arrays << ',' << options_.optimizer << ',' << options_.average;
  return hash64(text.str());
}

}  // namespace lockstep::state
