#pragma once

// A process whose end is not to be had, as one has it that a disk holds in the kernel: another process traces it, and
// does not take its end.

#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/pipe.h"

namespace lockstep::testing {

class ZombieKeeper {
 public:
  /// Until this ends, waitpid() for `traced` takes no status, though it may have ended.
  explicit ZombieKeeper(pid_t traced) {
    Pipe told;
    pid_ = fork();
    if (pid_ == 0) {
      char word = 'y';
      if (ptrace(PTRACE_SEIZE, traced, nullptr, nullptr) != 0 || write(told.writer.get(), &word, 1) != 1) _exit(1);
      for (;;) pause();
    }
    told.writer = base::UniqueFd();
    char word = 0;
    keeps_ = read(told.reader.get(), &word, 1) == 1;
  }
  ~ZombieKeeper() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ZombieKeeper(const ZombieKeeper&) = delete;
  ZombieKeeper& operator=(const ZombieKeeper&) = delete;

  /// False where nobody may trace.
  bool keeps() const { return keeps_; }

 private:
  pid_t pid_ = -1;
  bool keeps_ = false;
};

}  // namespace lockstep::testing
