#pragma once

// How a process that must not be held up speaks to a person: a terminal may stand still (Ctrl-S, a stalled ssh
// session), a pipe may be full. The agent's supervision, the log router and a training step go on meanwhile.
//
// What is written without waiting, and how:
//   terminal, pipe   opened a second time, non-blocking, through /proc/self/fd: setting O_NONBLOCK on the inherited
//                    descriptor would change it for the shell and everybody else who has it
//   socket           a flag of each call
//   file             as it is, for its offset is shared: a disk that stands still holds its writer
//   the rest         what cannot be opened again (a terminal of another user, /dev/tty, no /proc) is written to when
//                    poll() sees room, PIPE_BUF bytes at a time, and a timer of 100 ms interrupts a write that waits
//                    all the same
//
// A terminal with `stty tostop` does not stop the writer: SIGTTOU is blocked while it writes. SIGPIPE is the
// process's to ignore.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/base/unique_fd.h"

namespace lockstep::base {

/// How long the last words of a process wait for a terminal that stands still.
inline constexpr std::chrono::milliseconds kPatience{10'000};

/// One way out, for one thread at a time.
class Outlet {
 public:
  using Clock = std::chrono::steady_clock;

  /// A descriptor of this process, most often a standard stream; it stays the caller's. One that is closed, or whose
  /// readers are gone, takes everything and shows nothing.
  static Outlet console(int fd);
  /// A file of its own.
  static Outlet file(UniqueFd file);

  /// Errors and results: never dropped, shown in the order in which they were said. Writes what is taken at once; the
  /// rest waits for step(), wait() or flush().
  void say(std::string_view text);
  /// Progress: shown now or never. False when it was dropped, because something waits already or nothing is taken; a
  /// text that was taken in part is finished later, like what is said.
  bool offer(std::string_view text);

  /// Whether something waits to be written.
  bool pending() const { return !waiting_.empty(); }
  /// Writes what is taken without waiting; returns how many bytes.
  std::size_t step();
  /// Waits until `fd` can be read, and writes meanwhile what is pending. False at `deadline`.
  bool wait(int fd, Clock::time_point deadline) { return wait(fd, deadline, false); }
  /// Waits until all is written; gives up at `deadline`, or when `stop_fd` (-1: none) can be read. True when all that
  /// was said has got out.
  bool flush(Clock::time_point deadline, int stop_fd = -1);

  /// For poll(): room is there when it can be written to.
  int fd() const { return own_ ? own_.get() : fd_; }
  /// Before this time step() is of no use, whatever poll() says: a full disk tells nobody when there is room, and some
  /// terminals claim room that they do not have.
  Clock::time_point rests_until() const { return rests_until_; }
  /// The error that stopped it: for good when closed(), else until there is room again.
  int error() const { return error_; }
  bool closed() const { return closed_; }

 private:
  enum class Mode { plain, terminal, socket, blocking, gone };
  bool wait(int fd, Clock::time_point deadline, bool while_pending);
  ssize_t put(std::string_view bytes) const;
  void note(int error);

  Mode mode_ = Mode::plain;
  int fd_ = -1;  // shared with others
  UniqueFd own_;
  std::string waiting_;
  std::size_t written_ = 0;  // of waiting_
  Clock::time_point rests_until_{};
  int error_ = 0;
  bool closed_ = false;
};

/// What is said once and must be seen, the last words of a process for instance: says `text` on `fd` and waits for it,
/// kPatience at most.
void tell(int fd, std::string_view text);

}  // namespace lockstep::base
