#pragma once

// Copies whole lines from log files to one place: a console, or a file of filtered lines.
// Never waits, and holds 64 KiB of memory however long a line is and however far it is behind.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/log_file.h"

namespace lockstep::launch {

/// A descriptor that can be written to without waiting.
///
/// A terminal or pipe is opened a second time, non-blocking, through /proc/self/fd: setting
/// O_NONBLOCK on the inherited one would change it for the shell too. A socket has a flag for
/// each call. A file is shared, for its offset. What cannot be opened again (a terminal of
/// another user, no /proc) is written to only when poll() sees room, PIPE_BUF bytes at a time,
/// and a timer interrupts a write that waits all the same.
class Outlet {
 public:
  /// The standard stream `fd` of this process.
  static Outlet console(int fd);
  /// A file, made anew. UsageError naming path and reason.
  static Outlet file(const std::string& path);

  /// Bytes taken, or -errno; -EAGAIN: later.
  ssize_t write(std::string_view bytes) const;
  int fd() const { return own_ ? own_.get() : fd_; }
  /// True when each write needs a poll() before it.
  bool needs_poll() const { return mode_ == Mode::blocking; }

 private:
  enum class Mode { plain, socket, blocking, closed };
  Mode mode_ = Mode::plain;
  int fd_ = -1;  // shared with others
  base::UniqueFd own_;
};

/// One file that is followed.
struct Followed {
  LogFile* file = nullptr;
  std::string prefix;                ///< before each line
  std::vector<std::string> filters;  ///< only lines with one of these; none: all lines
  off_t shown = 0;                   ///< offset of the next byte to copy
};

class Follower {
 public:
  using Clock = std::chrono::steady_clock;

  /// `name` is what errors call it; "" for a console.
  Follower(Outlet outlet, std::string name);

  void follow(Followed file) { files_.push_back(std::move(file)); }
  /// A line of our own, ahead of the next line.
  void say(std::string line) { messages_.push_back(std::move(line)); }

  /// True when there is something to copy, and somewhere to.
  bool pending() const;
  /// Copies what is taken without waiting, 64 KiB or so. Call it when poll() says so.
  void step();

  int fd() const { return outlet_.fd(); }
  const std::string& name() const { return name_; }
  /// Before this time step() is of no use, whatever poll() says: a full disk tells nobody when
  /// there is room, and some terminals claim room that they do not have.
  Clock::time_point rests_until() const { return rests_until_; }
  /// The error that stopped it: for good when closed(), else until there is room again.
  int error() const { return error_; }
  bool closed() const { return closed_; }
  /// How far all copies of `file` by this follower have come; its end when there is none.
  off_t shown(const LogFile& file) const;

 private:
  bool prepare();
  bool choose();
  std::string_view ahead(const Followed& file);
  std::size_t piece(const Followed& file);
  bool passes(Followed& file, std::size_t line);
  bool long_line_passes(Followed& file) const;

  Outlet outlet_;
  std::string name_;
  std::vector<Followed> files_;
  std::deque<std::string> messages_;
  std::string out_;  // being written: a line, or a piece of a long one
  std::size_t out_done_ = 0;
  std::size_t current_ = 0;  // whose line it is
  bool mid_line_ = false;    // the line of `current_` goes on
  // A part of the current file: what is in memory of it.
  std::string buffer_;
  std::string_view window_;
  off_t window_start_ = 0;
  Clock::time_point rests_until_{};
  int error_ = 0;
  bool closed_ = false;
};

}  // namespace lockstep::launch
