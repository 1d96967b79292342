#pragma once

// Files with a small state_dict, and the numbers in files.

#include <cstring>
#include <string>
#include <vector>

#include "lockstep/checkpoint/files/weights_file.h"
#include "tests/support/pt_files.h"

namespace lockstep::checkpoint {

template <class Number>
std::string bytes_of_numbers(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

inline const std::string kSix = bytes_of_numbers<float>({0, 1, 2, 3, 4, 5});
inline const std::string kCount = bytes_of_numbers<std::int64_t>({7});

/// w: [2, 3] of storage 0; t: the same transposed; b: its last two; n: a scalar of storage 1.
inline testing::pt::Entries small_entries() {
  using namespace testing::pt;
  const std::string six = storage("FloatStorage", "0", 6);
  return {{"w", tensor(six, {2, 3}, {3, 1})},
          {"t", tensor(six, {3, 2}, {1, 3})},
          {"b", tensor(six, {2}, {1}, 4)},
          {"n", tensor(storage("LongStorage", "1", 1), {}, {})}};
}

inline std::string small_archive(const std::string& value, std::uint64_t wide_from = 0xffffffff) {
  return testing::pt::archive(value, {{"byteorder", "little"}, {"data/0", kSix}, {"data/1", kCount}}, wide_from);
}

inline std::string small_old_file(const std::string& value) {
  return testing::pt::old_file(value, {{"0", {6, kSix}}, {"1", {1, kCount}}});
}

template <class Number>
std::vector<Number> numbers(const WeightsFile& file, const std::string& name) {
  const StoredTensor& tensor = file.tensors().at(name);
  std::vector<Number> numbers(tensor.bytes() / sizeof(Number));
  file.read(tensor, reinterpret_cast<std::byte*>(numbers.data()));
  return numbers;
}

}  // namespace lockstep::checkpoint
