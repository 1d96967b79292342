#pragma once

// What Engine::debug() tells of a rank's steps.
//
// A step ends with the update of an optimizer of ours, and with the backward pass in which gradients are averaged where
// the optimizer is one of torch::optim, whose update then counts as `between` of the next step.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// Seconds.
struct StepTimes {
  double between = 0;   ///< from the end of the step before to forward: the loader, and an update of torch::optim
  double forward = 0;   ///< in the module, with the exchange of its buffers
  double backward = 0;  ///< from there to the last gradient, the loss included and an exchange not
  double exchange = 0;  ///< exposed communication: in which backward stood still, because buckets were exchanged; with
                        ///< an optimizer of ours, in which step() waited for the other ranks' gradients and votes, if
                        ///< there are others;
                        ///< within join() also for what the others are about to do
  double update = 0;    ///< of an optimizer of ours, without those waits: reduction, update, commit
  double total() const { return between + forward + backward + exchange + update; }
};

/// A size of buckets that was tried (BucketOptions::autotune).
struct BucketTrial {
  double bucket_cap_mb = 0;
  double seconds = 0;  ///< that backward passes took with it on the slowest rank, their median
};

/// Of the waves in which gradients go to other nodes (DataParallelOptions::overlap_bytes).
struct WaveData {
  int count = 0;                 ///< in a step; 0: nothing goes out before step()
  int early = 0;                 ///< of the last step: that were whole, and on their way, before step()
  int carried = 0;               ///< of the step that goes on: that other nodes have by now, as far as this rank sends
  std::uint64_t sent_bytes = 0;  ///< by this rank, in all steps that are done; no weights, which zero1 sends behind
};

/// Of this rank, as PyTorch's DistributedDataParallel has in _get_ddp_logging_data().
struct LoggingData {
  std::uint64_t steps = 0;  ///< that were timed
  StepTimes last;
  StepTimes all;                         ///< added up
  std::vector<std::string> ready_order;  ///< parameters, as their gradients came in the last step
  std::vector<std::size_t> buckets;      ///< bytes of each, as they are sent; empty with an optimizer of ours
  std::vector<BucketTrial> tried;        ///< the same on all ranks; empty until one is chosen
  WaveData waves;
};

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::BucketTrial;
using parallel::LoggingData;
using parallel::StepTimes;
using parallel::WaveData;
}  // namespace lockstep
