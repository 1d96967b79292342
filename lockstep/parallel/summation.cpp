#include "lockstep/parallel/summation.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "lockstep/base/tree.h"
#include "lockstep/comm/reduce/reduce.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kChunk = 1024;  // elements, summed while they are near

comm::Element narrow_element(c10::ScalarType type) {
  return type == c10::ScalarType::Half ? comm::Element::float16 : comm::Element::bfloat16;
}

const std::byte* element_at(const void* data, c10::ScalarType type, std::size_t first) {
  return static_cast<const std::byte*>(data) + first * c10::elementSize(type);
}

}  // namespace

c10::ScalarType sum_type(c10::ScalarType slots, int count, Compression compression) {
  if (compression == Compression::fp16) return c10::ScalarType::Half;
  if (compression == Compression::bf16) return c10::ScalarType::BFloat16;
  return count == 1 ? slots : c10::ScalarType::Float;
}

Summation::Summation(Compression compression, int shards)
    : compression_(compression),
      type_(sum_type(c10::ScalarType::Float, shards, compression)),
      scale_(compression == Compression::fp16 ? 1.0F / float(std::bit_ceil(unsigned(shards))) : 1.0F) {}

void Summation::add(ShardSpan leaves, const std::vector<Operand>& operands, std::size_t elements, void* to) const {
  for (std::size_t first = 0; first < elements; first += kChunk) {
    const std::size_t n = std::min(kChunk, elements - first);
    if (!rounds()) {
      add_tree(leaves, operands, first, n, static_cast<float*>(to) + first);
      continue;
    }
    float sums[kChunk];
    add_tree(leaves, operands, first, n, sums);
    comm::narrow(narrow_element(type_), sums, n, static_cast<std::byte*>(to) + first * c10::elementSize(type_));
  }
}

void Summation::widen(const void* from, std::size_t elements, float* to) const {
  for (std::size_t first = 0; first < elements; first += kChunk) {
    const std::size_t n = std::min(kChunk, elements - first);
    comm::widen(narrow_element(type_), element_at(from, type_, first), n, to + first);
    if (compression_ != Compression::fp16) continue;
    for (std::size_t i = first; i < first + n; ++i) to[i] /= scale_;
  }
}

// Elements [first, first + n), as what they are added to has them.
void Summation::load(const Operand& operand, std::size_t first, std::size_t n, float* to) const {
  const std::byte* const from = element_at(operand.data, operand.type, first);
  if (operand.type == c10::ScalarType::Float)
    std::memcpy(to, from, n * sizeof(float));
  else
    comm::widen(narrow_element(operand.type), from, n, to);
  if (compression_ != Compression::fp16 || operand.type == type_) return;
  for (std::size_t i = 0; i < n; ++i) to[i] *= scale_;
}

// As if they had travelled.
void Summation::round(float* sums, std::size_t n) const {
  if (!rounds()) return;
  std::byte rounded[kChunk * sizeof(std::uint16_t)];
  comm::narrow(narrow_element(type_), sums, n, rounded);
  comm::widen(narrow_element(type_), rounded, n, sums);
}

void Summation::add_tree(ShardSpan leaves, const std::vector<Operand>& operands, std::size_t first, std::size_t n,
                         float* to) const {
  for (const Operand& operand : operands)
    if (operand.shards == leaves) return load(operand, first, n, to);
  const int middle = leaves.first + base::tree_split(leaves.count());
  add_tree({leaves.first, middle}, operands, first, n, to);
  round(to, n);
  float right[kChunk];
  add_tree({middle, leaves.last}, operands, first, n, right);
  round(right, n);
  for (std::size_t i = 0; i < n; ++i) to[i] += right[i];
}

}  // namespace lockstep::parallel
