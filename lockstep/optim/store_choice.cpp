#include "lockstep/optim/store_choice.h"

#include <algorithm>

namespace lockstep::optim {
namespace {

// Where both are as fast, as they are for states much smaller than the caches, the choice stays what it is.
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
  if (++step_ == trial_) decide();
}

void StoreChoice::decide() {
  const Stores other = kept_ == Stores::plain ? Stores::streaming : Stores::plain;
  if (fastest(other) < kBetter * fastest(kept_)) kept_ = other;
  fastest_[0] = fastest_[1] = 0;
  step_ = 0;
  trial_ = 2 * kRun;
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, kLongestPause);
}

}  // namespace lockstep::optim
