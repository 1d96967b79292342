#include "lockstep/optim/store_choice.h"

#include <algorithm>

namespace lockstep::optim {
namespace {

// Where both are as fast, as they are for states much smaller than the caches, nobody wins.
constexpr double kBetter = 0.98;

}  // namespace

void StoreChoice::done(double seconds) {
  if (pause_ > 0) {
    --pause_;
    return;
  }
  if (is_timed()) {
    double& least = fastest(stores());
    least = least == 0 ? seconds : std::min(least, seconds);
  }
  if (++step_ % kPair == 0) judge_pair();
  if (step_ == trial_) end_trial();
}

void StoreChoice::judge_pair() {
  const double plain = fastest(Stores::plain), streaming = fastest(Stores::streaming);
  if (streaming < kBetter * plain) lead_ = std::min(lead_ + 1, kMostLead);
  if (plain < kBetter * streaming) lead_ = std::max(lead_ - 1, -kMostLead);
  fastest_[0] = fastest_[1] = 0;
}

void StoreChoice::end_trial() {
  if (lead_ != 0) kept_ = lead_ > 0 ? Stores::streaming : Stores::plain;
  step_ = 0;
  trial_ = kPair;
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, kLongestPause);
}

}  // namespace lockstep::optim
