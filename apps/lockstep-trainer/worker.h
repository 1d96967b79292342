#pragma once

// What the programs that lockstep train and lockstep predict start have in common: one rank of a job, from joining
// it to telling its launcher why it failed.

#include <functional>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/train/options.h"

namespace lockstep::app {

/// What a rank is to do.
struct Task {
  std::string text;                             ///< not empty: print it and exit with 0
  train::Options options;                       ///< how it joins: threads, binding, timeout, launcher's flags
  std::function<int(const comm::World&)> work;  ///< returns the exit code
};

/// Runs the task that `parse` makes of the command line; returns the exit code. An error reaches the user once.
int run_worker(const std::function<Task()>& parse);

}  // namespace lockstep::app
