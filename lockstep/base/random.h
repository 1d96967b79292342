#pragma once

// Counter-based random numbers: draw k of stream (seed, domain, index) is a pure function of
// these four numbers, so any process can make any part of a sequence in any order.
//
// The generator is Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
// 2011), the same one that CUDA libraries use. Integer arithmetic only: equal on every machine.

#include <array>
#include <cstdint>

namespace lockstep::base {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// The block of four words that belongs to `counter` under `key`.
inline PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t(0xD2511F53u) * counter[0];
    const std::uint64_t product1 = std::uint64_t(0xCD9E8D57u) * counter[2];
    counter = {std::uint32_t(product1 >> 32) ^ counter[1] ^ key[0], std::uint32_t(product1),
               std::uint32_t(product0 >> 32) ^ counter[3] ^ key[1], std::uint32_t(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// The draws of one stream, in order. `domain` keeps different uses of one seed apart, `index`
/// is usually a sample's number. Copyable; not thread-safe. 2^34 draws until it repeats.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::uint32_t domain, std::uint64_t index)
      : key_{std::uint32_t(seed), std::uint32_t(seed >> 32)},
        counter_{0, std::uint32_t(index), std::uint32_t(index >> 32), domain} {}

  /// 32 random bits.
  std::uint32_t next() {
    if (used_ == 4) {
      block_ = philox(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[used_++];
  }

  /// 0 … n−1, n > 0; biased by less than n / 2^32.
  std::uint32_t below(std::uint32_t n) { return std::uint32_t((std::uint64_t(next()) * n) >> 32); }

  /// A float in [lo, hi], of 24 random bits; exact up to the rounding of one product and one sum.
  float between(float lo, float hi) { return lo + (hi - lo) * (float(next() >> 8) * 0x1p-24f); }

 private:
  PhiloxKey key_;
  PhiloxCounter counter_;
  PhiloxCounter block_{};
  unsigned used_ = 4;
};

}  // namespace lockstep::base
