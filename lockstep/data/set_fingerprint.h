#pragma once

// What a set holds, in a few numbers, by which two readings of it are compared.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// Equal for two readings of one set, on any machine. Costs no reading: the content of pictures and files does not
/// count.
struct SetFingerprint {
  std::int64_t samples = 0;
  std::uint64_t classes = 0;  ///< of the names, in order
  std::uint64_t entries = 0;  ///< of what is known of each sample, in order: label, name below the set's folder, size

  bool operator==(const SetFingerprint&) const = default;
};

/// The hash (XXH3) of what has the hash `before` and `bytes` behind it; of nothing it is 0.
std::uint64_t hash_on(std::uint64_t before, std::string_view bytes);
std::uint64_t hash_on(std::uint64_t before, std::int64_t number);
std::uint64_t hash_of(const std::vector<std::string>& words);

}  // namespace lockstep::data
