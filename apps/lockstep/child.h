#pragma once

// Another program as a child of this one, and its end.

#include <string>
#include <vector>

namespace lockstep::app {

/// Runs `program` and waits for it: as long as it takes, for it does what was asked for. Ctrl-C goes to it as well, and
/// signals that ask for an end are passed on. It loses the variables `without`, and dies with this process. Returns its
/// exit code, 128 and the signal that ended it, or 127 when it cannot be executed.
int run_child(const std::string& program, const std::vector<std::string>& arguments,
              const std::vector<std::string>& without = {});

}  // namespace lockstep::app
