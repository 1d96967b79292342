#pragma once

// One rank of a job, from joining it to telling its launcher why it failed.

#include <functional>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// What a rank is to do.
struct Task {
  std::string text;  ///< not empty: print it and exit with 0
  Options options;   ///< how it joins: device, threads, binding, timeout, launcher's flags
  /// Returns the exit code. The options are those above; `device` is "cpu" or "cuda..." in them where "auto" was asked
  /// for. For a GPU, libtorch's CUDA part is loaded by then.
  std::function<int(const Options&, const comm::World&)> work;
};

/// Runs the task that `parse` makes of the command line; returns the exit code. An error reaches the user once.
int run_worker(const std::function<Task()>& parse);

}  // namespace lockstep::train
