#pragma once

// Why a job's program cannot be started.

#include <string>

namespace lockstep::launch {

/// Exit codes for a program that cannot be executed, as a shell has them.
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

struct Refusal {
  int code = 0;      ///< what the job exits with
  std::string text;  ///< one line without its end
};

/// For `program`, a path or a name without one, and the errno of its execve; a name that PATH does not have is ENOENT.
/// Looks whether a file of that name exists, to say what is missing.
Refusal cannot_execute(const std::string& program, int error);

/// For a script that Python is to run, and the errno of its opening.
Refusal cannot_read(const std::string& script, int error);

}  // namespace lockstep::launch
