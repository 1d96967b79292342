#pragma once

// Both ends of a pipe, which no child inherits.

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "lockstep/base/unique_fd.h"

namespace lockstep::testing {

struct Pipe {
  base::UniqueFd reader, writer;

  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    reader = base::UniqueFd(ends[0]);
    writer = base::UniqueFd(ends[1]);
  }

  /// What lies in it now; waits for nothing.
  std::string read_all() const {
    std::string text;
    char piece[4096];
    int waiting = 0;
    while (ioctl(reader.get(), FIONREAD, &waiting) == 0 && waiting > 0)
      text.append(piece, std::size_t(read(reader.get(), piece, sizeof piece)));
    return text;
  }
};

}  // namespace lockstep::testing
