#pragma once

// The families of failure.
//
//   UsageError    the caller or the input is wrong; the message says what would be right.
//   GroupAborted  the world failed: some rank of the group died, threw or was too late.
//   Error         anything else that stops the program.
//
// A program's exit code follows from the family: see exit_code().

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lockstep {

/// Base of everything Lockstep throws. what() is one line for a person.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Wrong use or bad input (an unknown value, a damaged file). Repeating it cannot help.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// A failure's rank where ranks are seats and it is another node's: this, less its number in the world.
inline constexpr int kOnAnotherNode = -2;

/// What went wrong in a group, as the first rank that noticed wrote it down.
struct Failure {
  int rank = -1;           ///< the rank that failed; -1: the agent, or unknown; see kOnAnotherNode
  std::uint64_t step = 0;  ///< the step it was in; 0: before the first
  std::string phase;       ///< what it was doing, in words ("forward", "update")
  std::string cause;       ///< why, one line
  int exit_code = 1;       ///< what a process that stops because of it exits with

  /// "rank 1, step 12, forward: killed by SIGKILL".
  std::string to_string() const;
};

/// Thrown by every wait of a group once any of its ranks has failed.
class GroupAborted : public Error {
 public:
  explicit GroupAborted(Failure failure);
  const Failure& failure() const { return failure_; }

 private:
  Failure failure_;
};

/// Exit codes of our programs: 0 done, 1 failure, 2 wrong use or bad input, 75 (sysexits' EX_TEMPFAIL) asked to stop
/// before the end, all saved: to be started again, 128+n signal n.
enum ExitCode : int { kExitDone = 0, kExitFailure = 1, kExitUsage = 2, kExitStopped = 75 };

/// The exit code that belongs to a caught exception.
int exit_code(const std::exception& error);

/// Throws Error("<what>: <strerror(errno)>").
[[noreturn]] void throw_errno(const std::string& what);

}  // namespace lockstep
