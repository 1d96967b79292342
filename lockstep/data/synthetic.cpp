#include "lockstep/data/synthetic.h"

#include <bit>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep::data {
namespace {

constexpr std::uint32_t kDomain = 0x53594e54;  // "SYNT": other uses of the seed draw other numbers

static_assert(std::endian::native == std::endian::little, "the bytes of a word are pixels, lowest first");

// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014): eight bytes in a
// nanosecond, where ten rounds of Philox would be what a benchmark measures. Word k is a function of key + k.
std::uint64_t word(std::uint64_t state) {
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBu;
  return state ^ (state >> 31);
}

void fill(std::uint8_t* bytes, std::size_t count, std::uint64_t state) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15u;
  for (; count >= sizeof(std::uint64_t); count -= sizeof(std::uint64_t), bytes += sizeof(std::uint64_t)) {
    const std::uint64_t noise = word(state += kStep);
    std::memcpy(bytes, &noise, sizeof noise);
  }
  const std::uint64_t noise = word(state + kStep);
  std::memcpy(bytes, &noise, count);
}

void check(std::int64_t value, bool valid, const char* what, const char* expected) {
  if (!valid) throw UsageError("synthetic set: " + std::to_string(value) + " " + what + ", " + expected + " expected");
}

}  // namespace

SyntheticPictures::SyntheticPictures(const SyntheticOptions& options) : options_(options) {
  check(options.size, options.size > 0, "samples", "at least 1");
  check(options.image_size.height, options.image_size.height > 0, "rows of pixels", "at least 1");
  check(options.image_size.width, options.image_size.width > 0, "columns of pixels", "at least 1");
  check(options.channels, options.channels == 1 || options.channels == 3, "channels", "1 or 3");
  check(options.classes, options.classes > 0, "classes", "at least 1");
  for (int label = 0; label < options.classes; ++label) classes_.push_back(std::to_string(label));
}

Sample SyntheticPictures::get(std::int64_t index) const {
  check_index(index, size());
  base::RandomStream random(options_.seed, kDomain, std::uint64_t(index));
  const std::int64_t label = random.below(std::uint32_t(options_.classes));
  std::uint64_t key = random.next();
  key = key << 32 | random.next();
  Image image(options_.image_size, options_.channels);
  fill(image.row(0), image.bytes(), key);
  return {Picture(std::move(image)), label};
}

}  // namespace lockstep::data
