#pragma once

// What a person sees of a download: on a terminal a line that is rewritten, in a file or pipe plain lines.

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep::data {

/// "train-images-idx3-ubyte.gz  [#####---------------]  25 %  2.4 of 9.5 MiB"; `columns` wide at most, when
/// it is known (0: not).
std::string bar_text(const std::string& file, std::uint64_t done, std::uint64_t bytes, int columns);

/// A failure to write is no failure of the download: nobody may be looking any more.
class DownloadProgress {
 public:
  /// Nothing is written when `fd` is negative.
  explicit DownloadProgress(int fd);

  /// A download of a file of `bytes` bytes begins, `done` of which are there from an earlier one.
  void begin(const std::string& file, const std::string& url, std::uint64_t done, std::uint64_t bytes);
  void advance(std::uint64_t done);
  /// A sentence of its own.
  void say(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  void write(const std::string& text);

  int fd_;
  bool terminal_;
  bool line_open_ = false;  // the cursor is in the bar's line
  std::string file_;
  std::uint64_t bytes_ = 0;
  std::uint64_t tenth_ = 0;  // the last one that was said
  Clock::time_point drawn_;
};

}  // namespace lockstep::data
