#pragma once

// When the gradients of a wave are whole. With an optimizer of ours they add up until step(), and nobody says which
// backward pass is a step's last one. So a wave counts as whole when each of its parameters has got as many gradients
// as in the last step that brought it any; what comes later makes the step exchange its waves again. A parameter that
// stays away for a hundred steps is not waited for: it may be frozen, or hardly ever used. Pure.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/parallel/exchange_plan.h"

namespace lockstep::parallel {

class WaveCount {
 public:
  /// Of a layout's waves, and of a rank that computes so many shards.
  WaveCount(std::vector<Wave> waves, int shards);

  /// A backward pass of the rank's shard `shard`, from 0 on, has come to the parameter, whether that got a gradient or
  /// not.
  void came(int shard, std::size_t parameter);
  /// How many waves, from the first on, are whole as far as the last step tells. 0 when there was none.
  int whole() const { return whole_; }

  const Wave& wave(int number) const { return waves_[std::size_t(number)]; }
  int wave_of(std::size_t parameter) const { return wave_of_[parameter]; }

  /// What has come counts nowhere: a step begins anew.
  void drop();
  /// A step was made of what has come, and the next one will be made of as much. `again`: gradients of it, on some
  /// rank, came behind their wave. Then none is whole before step() for the next 2 steps, and where that was of no help
  /// for the next 4, up to 1,024: a program whose steps never are alike does not pay twice for each.
  void learn(bool again);

 private:
  const std::vector<Wave> waves_;
  std::vector<int> wave_of_;             ///< by parameter
  std::vector<std::uint32_t> counts_;    ///< by shard, then by parameter: how often it was come to
  std::vector<std::uint32_t> expected_;  ///< likewise, by the last step that came to it at all
  std::vector<std::uint8_t> absent_;     ///< likewise: steps since then
  std::vector<std::size_t> missing_;     ///< by wave: how many of those have not come
  int whole_ = 0;
  int pause_ = 1;   ///< steps to be learned of before any wave is whole
  int length_ = 1;  ///< of the last pause
};

}  // namespace lockstep::parallel
