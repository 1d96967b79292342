#include "lockstep/parallel/wave_count.h"

#include <algorithm>
#include <utility>

namespace lockstep::parallel {
namespace {

constexpr int kLongestPause = 1024;

// Steps in a row without it, after which nothing is expected of a parameter.
constexpr std::uint8_t kForgotten = 100;

}  // namespace

WaveCount::WaveCount(std::vector<Wave> waves, int shards)
    : waves_(std::move(waves)), wave_of_(waves_.front().last), missing_(waves_.size()) {
  for (std::size_t wave = 0; wave < waves_.size(); ++wave)
    for (std::size_t i = waves_[wave].first; i < waves_[wave].last; ++i) wave_of_[i] = int(wave);
  counts_.resize(wave_of_.size() * std::size_t(shards));
  expected_.resize(counts_.size());
  absent_.resize(counts_.size());
}

void WaveCount::came(int shard, std::size_t parameter) {
  const std::size_t at = std::size_t(shard) * wave_of_.size() + parameter;
  if (++counts_[at] <= expected_[at]) --missing_[std::size_t(wave_of_[parameter])];
  if (pause_ > 0) return;
  while (whole_ < int(waves_.size()) && missing_[std::size_t(whole_)] == 0) ++whole_;
}

void WaveCount::drop() {
  std::ranges::fill(counts_, 0u);
  std::ranges::fill(missing_, std::size_t(0));
  for (std::size_t at = 0; at < expected_.size(); ++at)
    missing_[std::size_t(wave_of_[at % wave_of_.size()])] += expected_[at];
  whole_ = 0;
}

// A rank that had no inputs has nothing to learn from its step.
void WaveCount::learn(bool again) {
  const bool any = std::ranges::any_of(counts_, [](std::uint32_t count) { return count > 0; });
  if (again)
    pause_ = length_ = std::min(2 * length_, kLongestPause);
  else if (any && pause_ > 0)
    --pause_;
  else if (any)
    length_ = std::max(1, length_ / 2);
  for (std::size_t at = 0; any && at < counts_.size(); ++at) {
    if (counts_[at] > 0) {
      expected_[at] = counts_[at];
      absent_[at] = 0;
    } else if (expected_[at] > 0 && ++absent_[at] == kForgotten) {
      expected_[at] = absent_[at] = 0;
    }
  }
  drop();
}

}  // namespace lockstep::parallel
