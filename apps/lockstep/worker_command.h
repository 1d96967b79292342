#pragma once

// What commands with workers of our own, train and predict, have in common.

#include <string>
#include <vector>

#include "lockstep/rendezvous/environment.h"
#include "lockstep/train/options.h"

namespace lockstep::app {

/// Where this process was started: becomes the agent of workers that `program`, beside this one, is run as with
/// `arguments`, and returns the job's exit code; or becomes such a worker itself, where another launcher has started
/// this process as one. UsageError for flags that then have no meaning.
int run_as_worker_or_agent(const rendezvous::Place& place, const train::Options& options, const std::string& program,
                           const std::vector<std::string>& arguments);

}  // namespace lockstep::app
