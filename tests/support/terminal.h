#pragma once

// A terminal of the test's own, which nobody reads unless the test does.

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>

#include "lockstep/base/unique_fd.h"

namespace lockstep::testing {

class Terminal {
 public:
  Terminal() : master_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)) {
    if (!master_ || grantpt(master_.get()) != 0 || unlockpt(master_.get()) != 0) throw std::runtime_error("no pty");
    name_ = ptsname(master_.get());
    screen_ = base::UniqueFd(open(name_.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!screen_) throw std::runtime_error("cannot open " + name_);
  }

  const std::string& name() const { return name_; }
  /// The side that programs write to; blocking, as a shell hands it on.
  int screen() const { return screen_.get(); }

  /// Ctrl-S, Ctrl-Q.
  void stop() const { tcflow(screen_.get(), TCOOFF); }
  void go_on() const { tcflow(screen_.get(), TCOON); }

  /// Writes until nothing more is taken.
  void fill() const {
    const std::string piece(100, '.');  // small, so that little is free when something is
    const base::UniqueFd fd(open(name_.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
    do {
      while (write(fd.get(), piece.data(), piece.size()) > 0) {
      }
    } while (has_room(50));  // the kernel moves bytes on a little later
  }
  /// The same, then reads until it claims to have room again: a few hundred bytes.
  void fill_but_for_little() const {
    fill();
    char piece[64];
    while (!has_room(5))
      if (read(master_.get(), piece, sizeof piece) < 0) throw std::runtime_error("a full terminal without bytes");
  }

  /// What has been written and not yet been read.
  std::string read_all() const {
    std::string text;
    std::array<char, 4096> piece;
    pollfd more{.fd = master_.get(), .events = POLLIN, .revents = 0};
    while (poll(&more, 1, 0) == 1) {
      const ssize_t count = read(master_.get(), piece.data(), piece.size());
      if (count <= 0) break;
      text.append(piece.data(), std::size_t(count));
    }
    return text;
  }

 private:
  bool has_room(int milliseconds) const {
    pollfd room{.fd = screen_.get(), .events = POLLOUT, .revents = 0};
    return poll(&room, 1, milliseconds) == 1;
  }

  base::UniqueFd master_;
  base::UniqueFd screen_;
  std::string name_;
};

}  // namespace lockstep::testing
