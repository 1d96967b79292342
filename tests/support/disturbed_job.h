#pragma once

// A small job whose ranks are killed and started again, and the undisturbed one, whose states it must have
// at the same steps, bit for bit.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/segment.h"
#include "tests/support/small_job.h"

namespace lockstep::support {

inline constexpr int kDisturbedShards = 3;  ///< and ranks at most
inline constexpr int kAbortedCode = 42;     ///< a rank that saw GroupAborted for the reason it should

/// Adam with groups, a running average and all options of a step, with ballast that makes the flip long enough for a
/// signal to arrive in it.
SmallJob disturbed_job(Amp amp, std::uint64_t steps);

using RankMain = std::function<int(std::shared_ptr<comm::Group>)>;

/// Forks the ranks of the segment's generation. They end with body's result, 1 when it throws, and with this process.
std::vector<pid_t> start_ranks(const base::Segment& segment, const RankMain& body);

/// The status of a process that ends within a minute, which is no measure: other work may keep the cores busy. Nothing
/// (and it is killed) otherwise.
std::optional<int> wait_for(pid_t pid);
bool exited_with(const std::optional<int>& status, int code);

/// The state hash after each step of the undisturbed run, on one rank, in memory shared with forked ranks.
class History {
 public:
  /// `after_step` is called before the first and after each step, before its hash is taken.
  History(
      Amp amp, std::uint64_t steps,
      const std::function<void(parallel::Engine&)>& after_step = [](parallel::Engine&) {});
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  std::uint64_t steps() const { return steps_; }
  std::string at(std::uint64_t step) const { return hashes_[step].text; }

 private:
  struct Hash {
    char text[33];
  };
  std::uint64_t steps_;
  Hash* hashes_;
};

/// Runs the segment's generation from `committed` to `until`; each state it has on the way must be the history's.
/// Returns whether all ranks found it so, which else fails the test.
bool goes_on(const base::Segment& segment, Amp amp, const History& history, std::uint64_t committed,
             std::uint64_t until);

/// LOCKSTEP_KILLS: how many kills a test makes, 30 unless set; 300 by hand.
int planned_kills();

}  // namespace lockstep::support
