#pragma once

// A command under test with all its descendants: what it prints, how it ends, what it
// leaves behind. Every wait has a deadline, after which the test fails by an exception.

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"

namespace lockstep::testing {

class Job {
 public:
  /// Starts the command (a path first), with these variables added to the environment and
  /// all launchers' variables of this process removed; OMP_NUM_THREADS is 1 unless given.
  explicit Job(const std::vector<std::string>& command, const std::vector<std::string>& variables = {});
  /// Kills what is left.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;

  /// What the command and its descendants have written so far.
  std::string out() const;
  std::string err() const;
  /// Waits until stdout holds `count` lines, and returns them.
  std::vector<std::string> wait_for_lines(std::size_t count) const;

  /// Waits for the end of the command: its exit code, or 128 + signal.
  int wait();

  /// The living descendants, found by a mark in their environment, whoever their parent is.
  std::vector<pid_t> living() const;
  /// True when no descendant lives, at the latest after `within`.
  bool nothing_left(std::chrono::milliseconds within = std::chrono::seconds(1)) const;

 private:
  std::string mark_;
  base::UniqueFd out_;
  base::UniqueFd err_;
  pid_t pid_ = -1;
  int code_ = -1;
};

/// The process of a job that has this rank, by the variables of torchrun's contract. Throws std::runtime_error when
/// there is none.
pid_t pid_of_rank(const Job& job, int rank);

/// Open MPI's launcher for this many ranks, without the program. Its session folder is this process's own: two that
/// start at the same time race for making the folder they would share, and one fails.
std::vector<std::string> mpirun(int processes);

/// The lines of a text.
std::vector<std::string> lines(const std::string& text);

/// The state letter of a process ('S', 'T', 'Z' ...), or 0 when there is none.
char process_state(pid_t pid);

}  // namespace lockstep::testing
