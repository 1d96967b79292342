#pragma once

// A terminal of the test's own, which nobody reads unless the test does.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>

#include "lockstep/base/unique_fd.h"
#include "tests/support/wait_until.h"

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

  /// `stty tostop`: stops whoever writes in the background. For a process of the terminal's session.
  void stop_background_writers() const {
    termios settings{};
    tcgetattr(screen_.get(), &settings);
    settings.c_lflag |= TOSTOP;
    tcsetattr(screen_.get(), TCSANOW, &settings);
  }

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

  /// What has come so far. The kernel hands on what was written a little later (a work queue of its own).
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
  /// All that was written before this call, by programs that write no more: up to a mark behind it.
  std::string read_rest() const {
    constexpr char kMark = '\x1f';
    std::string text;
    bool marked = false;
    wait_until([&] {
      marked = marked || (has_room(0) && write(screen_.get(), &kMark, 1) == 1);
      text += read_all();
      return text.ends_with(kMark);
    });
    text.pop_back();
    return text;
  }

  /// All that is shown until over() says that nobody writes any more, which may wait for somebody who reads.
  template <class Over>
  std::string read_until(Over&& over) const {
    std::string text;
    wait_until([&] {
      text += read_all();
      return over();
    });
    return text + read_rest();
  }

  struct SessionEnd {
    int result;
    std::string seen;
  };
  /// Runs `body` in a child process that leads a session with this terminal: what it returned, and what was shown.
  template <class Body>
  SessionEnd in_session(Body&& body) const {
    const pid_t leader = fork();
    if (leader == 0) {
      setsid();
      signal(SIGHUP, SIG_IGN);
      const int result = ioctl(screen_.get(), TIOCSCTTY, 0) == 0 ? body() : 200;
      raise(SIGSTOP);  // its end hangs up the terminal, and what the kernel has not yet handed on is lost
      _exit(result);
    }
    int status = -1;
    wait_until([&] { return waitpid(leader, &status, WNOHANG | WUNTRACED) == leader; });
    SessionEnd end{.result = 201, .seen = read_rest()};
    if (WIFSTOPPED(status)) {
      kill(leader, SIGCONT);
      wait_until([&] { return waitpid(leader, &status, WNOHANG) == leader; });
      end.result = WEXITSTATUS(status);
    }
    return end;
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
