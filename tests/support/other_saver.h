#pragma once

// Another program that saves checkpoints.

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <iostream>
#include <string>

#include "lockstep/base/unique_fd.h"
#include "lockstep/checkpoint/store/folder_lock.h"
#include "tests/support/pipe.h"

namespace lockstep::testing {

/// Holds a folder of checkpoints until it is killed, or with the object.
class OtherSaver {
 public:
  explicit OtherSaver(const std::string& folder) {
    Pipe ready;
    pid_ = ::fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        checkpoint::hold_folder(folder);
        if (::write(ready.writer.get(), "x", 1) == 1) ::pause();
      } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
      }
      ::_exit(1);
    }
    ready.writer = base::UniqueFd();  // so that one that fails ends the waiting
    char byte = 0;
    EXPECT_EQ(::read(ready.reader.get(), &byte, 1), 1) << "it could not hold '" << folder << "'";
  }
  OtherSaver(const OtherSaver&) = delete;
  ~OtherSaver() { kill(); }

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

}  // namespace lockstep::testing
