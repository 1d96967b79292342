#pragma once

// A file to which whole records (lines, frames) are appended.

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/unique_fd.h"

namespace lockstep::metrics {

/// Appends without a buffer of its own: each record is handed to the kernel at once, so a
/// killed process leaves whole records. Not thread-safe.
class LineFile {
 public:
  /// Opens `path` for appending, making it when it is not there. Throws Error naming it.
  explicit LineFile(std::string path);

  /// The same for a file of lines. What stands behind its last newline, of a machine that went down in the middle of a
  /// line, is cut off first: the next line would be glued to it.
  static LineFile of_lines(std::string path);

  /// Throws Error naming the file when the record does not fit or the file is closed; what
  /// was written of the record is taken back, so the records before it stay readable.
  void append(std::string_view record);

  /// True when nothing was in the file when it was opened.
  bool is_new() const { return is_new_; }

 private:
  void cut_torn_line();

  std::string path_;
  base::UniqueFd fd_;
  bool is_new_ = true;
};

}  // namespace lockstep::metrics
