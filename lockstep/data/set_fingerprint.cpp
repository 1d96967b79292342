#include "lockstep/data/set_fingerprint.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::data {

std::uint64_t hash_on(std::uint64_t before, std::string_view bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), before);
}

std::uint64_t hash_on(std::uint64_t before, std::int64_t number) {
  return hash_on(before, {reinterpret_cast<const char*>(&number), sizeof number});
}

std::uint64_t hash_of(const std::vector<std::string>& words) {
  std::uint64_t hash = 0;
  for (const std::string& word : words) hash = hash_on(hash, word);
  return hash;
}

}  // namespace lockstep::data
