#pragma once

// Which stores are the faster ones for a rank's slice is measured, for no number that a machine tells of itself says
// it: caches are shared with other machines, and writes past them cost what the memory makes of them. The bits are
// the same either way, so every rank chooses for itself.
//
// Both kinds are tried in pairs of runs, four steps with each, of which the first is not timed: it finds in the caches
// what the other kind has left there. The kind whose fastest step of the pair was faster wins the pair, and the one
// that has won more pairs is kept. Times of a shared machine vary by more than the kinds differ, and one pair in four
// may go to the wrong one; so the first steps are seven pairs, and a pair more comes after 64, 128, ... and at last
// every 1,024 steps. Old pairs count for little: a lead grows to three at most, so that four lost pairs change the
// choice. Which steps these are, and which kind each tries, depends on their number alone: all ranks of a job try the
// same kind at the same time, in the caches and the memory that they share, whatever each has kept.

#include <chrono>

#include "lockstep/optim/update.h"

namespace lockstep::optim {

/// Decides by the times that it is told; looks at no clock. One thread at a time.
class StoreChoice {
 public:
  /// Steps until the first choice is made.
  static constexpr int kFirstTrial = 56;
  /// Between two pairs, once they have become rare. A pair takes four steps with the slower kind.
  static constexpr int kLongestPause = 1024;

  /// The stores of the next step.
  Stores stores() const { return pause_ > 0 ? kept_ : step_ / kRun % 2 == 0 ? Stores::plain : Stores::streaming; }
  /// Whether the next step's time is wanted.
  bool is_timed() const { return pause_ == 0 && step_ % kRun != 0; }
  /// A step with stores() is done. `seconds`: what it took; not looked at unless is_timed().
  void done(double seconds);

 private:
  static constexpr int kRun = 4;
  static constexpr int kPair = 2 * kRun;
  static constexpr int kFirstPause = 64;
  static constexpr int kMostLead = 3;
  static_assert(kFirstTrial % kPair == 0);

  double& fastest(Stores stores) { return fastest_[stores == Stores::streaming ? 1 : 0]; }
  void judge_pair();
  void end_trial();

  Stores kept_ = Stores::plain;
  int lead_ = 0;             ///< pairs that streaming has won more often than plain
  int step_ = 0;             ///< of the trial
  int trial_ = kFirstTrial;  ///< steps of it
  int pause_ = 0;            ///< steps until the next trial; 0: in one
  int next_pause_ = kFirstPause;
  double fastest_[2] = {0, 0};  ///< of this pair, plain and streaming; 0: none yet
};

/// One step by update(stores). When its time is wanted, read() then reads what forward will read of it: stores past
/// the caches make that slower. Each of the node's `ranks` will read the slices of all, so it counts that often.
template <class Update, class Read>
void run_update(StoreChoice& choice, int ranks, Update&& update, Read&& read) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  if (!choice.is_timed()) {
    update(choice.stores());
    return choice.done(0);
  }
  const Clock::time_point start = Clock::now();
  update(choice.stores());
  const Clock::time_point updated = Clock::now();
  read();
  choice.done(Seconds(updated - start).count() + ranks * Seconds(Clock::now() - updated).count());
}

}  // namespace lockstep::optim
