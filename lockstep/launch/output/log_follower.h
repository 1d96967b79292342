#pragma once

// Copies whole lines from log files to one place: a console, or a file of filtered lines.
// Never waits, and holds 64 KiB of memory however long a line is and however far it is behind.

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/outlet.h"
#include "lockstep/launch/output/log_file.h"

namespace lockstep::launch {

/// One file that is followed.
struct Followed {
  LogFile* file = nullptr;
  std::string prefix;                ///< before each line
  std::vector<std::string> filters;  ///< only lines with one of these; none: all lines
  off_t shown = 0;                   ///< offset of the next byte to copy
};

class Follower {
 public:
  /// `name` is what errors call it; "" for a console.
  Follower(base::Outlet outlet, std::string name);

  void follow(Followed file) { files_.push_back(std::move(file)); }
  /// A line of our own, ahead of the next line.
  void say(std::string line) { messages_.push_back(std::move(line)); }

  /// True when there is something to copy, and somewhere to.
  bool pending() const;
  /// Copies what is taken without waiting, 64 KiB or so. Call it when poll() says so.
  void step();

  int fd() const { return outlet_.fd(); }
  const std::string& name() const { return name_; }
  /// As of the Outlet.
  base::Outlet::Clock::time_point rests_until() const { return outlet_.rests_until(); }
  int error() const { return outlet_.error(); }
  /// How far all copies of `file` by this follower have come; its end when there is none.
  off_t shown(const LogFile& file) const;

 private:
  std::string next();
  bool choose();
  std::string_view ahead(const Followed& file);
  std::size_t piece(const Followed& file);
  bool passes(Followed& file, std::size_t line);
  bool long_line_passes(Followed& file) const;

  base::Outlet outlet_;  // what is pending there is a line, or a piece of a long one
  std::string name_;
  std::vector<Followed> files_;
  std::deque<std::string> messages_;
  std::size_t current_ = 0;  // whose line it is
  bool mid_line_ = false;    // the line of `current_` goes on
  // A part of the current file: what is in memory of it.
  std::string buffer_;
  std::string_view window_;
  off_t window_start_ = 0;
};

}  // namespace lockstep::launch
