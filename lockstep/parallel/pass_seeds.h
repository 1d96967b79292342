#pragma once

// The random numbers of a shard's passes: torch's generator of the CPU begins each with shard_seed() of it.
//
// To make the generator's 624 words of a seed is a chain of multiplications, each of which waits for the one before:
// about a microsecond, in most of which the processor could do more. So the first passes of four steps, whose seeds
// are known, are made beside each other, in a third of the time each.

#include <ATen/core/MT19937RNGEngine.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::parallel {

class PassSeeds {
 public:
  /// Of the logical shard `shard` in a run of seed `seed`.
  PassSeeds(std::uint64_t seed, int shard);

  /// Seeds the generator for pass `pass` of step `step`, which leaves it as set_current_seed() does. Any order of steps
  /// is right; one after the other is fast.
  void begin(std::uint64_t step, std::uint64_t pass);

 private:
  static constexpr std::size_t kAhead = 4;
  using Words = at::mt19937_data_pod;

  /// Makes the words of the first passes of kAhead steps, from `step` on.
  void look_ahead(std::uint64_t step);

  std::uint64_t seed_;
  int shard_;
  std::uint64_t first_ = 0;  ///< the step of words_[0]; 0: none is made
  std::array<Words, kAhead> words_;
  at::mt19937 engine_;  ///< kept, for to make one is to seed one
};

}  // namespace lockstep::parallel
