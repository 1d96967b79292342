#include "lockstep/checkpoint/files/compare.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "lockstep/base/text.h"
#include "lockstep/checkpoint/files/elements.h"
#include "lockstep/checkpoint/store/tensor_file.h"
#include "lockstep/checkpoint/store/tensor_header.h"

namespace lockstep::checkpoint {
namespace {

std::string text_of_sizes(const std::vector<std::int64_t>& sizes) {
  std::vector<std::string> words;
  for (const std::int64_t size : sizes) words.push_back(std::to_string(size));
  return "[" + base::join(words) + "]";
}

std::string shape_of(const StoredTensor& tensor) { return tensor.dtype + " " + text_of_sizes(tensor.sizes); }

std::vector<std::byte> all_of(const WeightsFile& file, const StoredTensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes());
  file.read(tensor, bytes.data());
  return bytes;
}

// "3 of 10 elements differ, by 0.5 at most"; "" when all bits are equal.
std::string difference(const std::string& dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  if (a == b) return "";
  const std::size_t element = element_bytes(dtype), elements = a.size() / element,
                    numbers = numbers_in(dtype, a.size());
  std::size_t different = 0;
  for (std::size_t i = 0; i < elements; ++i)
    if (std::memcmp(a.data() + i * element, b.data() + i * element, element) != 0) ++different;
  double largest = 0;
  for (std::size_t i = 0; i < numbers; ++i) {
    const double distance = distance_at(dtype, a.data(), b.data(), i);
    // Not a number, where only one of both is none, is larger than any.
    if (std::isnan(distance) && std::isnan(number_at(dtype, a.data(), i)) && std::isnan(number_at(dtype, b.data(), i)))
      continue;
    if (!(distance <= largest)) largest = distance;
    if (std::isnan(largest)) break;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", largest);
  return std::to_string(different) + " of " + std::to_string(elements) + " elements differ, by " + text + " at most";
}

Comparison compare_with(const WeightsFile& a, const WeightsFile& b, bool values) {
  Comparison found;
  const auto add = [&](const std::string& name, const std::string& what) {
    found.differences.push_back(base::shown(name) + ": " + what);
  };
  for (const auto& [name, tensor] : a.tensors()) {
    const auto other = b.tensors().find(name);
    if (other == b.tensors().end()) {
      add(name, shape_of(tensor) + " only in '" + brief(a.path()) + "'");
    } else if (other->second.dtype != tensor.dtype || other->second.sizes != tensor.sizes) {
      add(name, shape_of(tensor) + " and " + shape_of(other->second));
    } else {
      ++found.compared;
      if (!values) continue;
      const std::string what = difference(tensor.dtype, all_of(a, tensor), all_of(b, other->second));
      if (!what.empty()) add(name, shape_of(tensor) + ", " + what);
    }
  }
  for (const auto& [name, tensor] : b.tensors())
    if (!a.tensors().contains(name)) add(name, shape_of(tensor) + " only in '" + brief(b.path()) + "'");
  return found;
}

}  // namespace

Comparison compare_headers(const WeightsFile& a, const WeightsFile& b) { return compare_with(a, b, false); }

Comparison compare(const WeightsFile& a, const WeightsFile& b) { return compare_with(a, b, true); }

}  // namespace lockstep::checkpoint
