#pragma once

// What the agent starts when a job has failed for good (launch/agent/state_saver.h); no command of a user's.

#include <string>

namespace lockstep::app {

/// Saves the committed state of the segment at `path`, of `local_world` ranks that have all ended, as the plan in it
/// says (checkpoint/store/state_plan.h), and tells on stderr what came of it. A checkpoint of that step that the
/// program has made is replaced, and its metric stays. Nothing where no step is committed, and an error where another
/// job has gone on in the run directory. Returns the exit code.
int save_segment(const std::string& path, const std::string& local_world);

}  // namespace lockstep::app
