#pragma once

// A file to which whole records (lines, frames) are appended.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/unique_fd.h"

namespace lockstep::metrics {

/// What becomes of a record that the disk refuses as long as it does: full, over quota, read-only, failing.
enum class WhenRefused {
  throws,      ///< an Error that names the file
  leaves_out,  ///< the next one is tried; the first of a file is told in one line on standard error
};

/// Appends without a buffer of its own: each record is handed to the kernel at once, so a
/// killed process leaves whole records. Not thread-safe.
class LineFile {
 public:
  /// Opens `path` for appending, making it when it is not there. Throws Error naming it.
  explicit LineFile(std::string path);

  /// The same for a file of lines. What stands behind its last newline, of a machine that went down in the middle of a
  /// line, is cut off first: the next line would be glued to it.
  static LineFile of_lines(std::string path);

  /// Throws Error naming the file when the record does not fit or the file is closed; see when_refused(). What
  /// was written of the record is taken back, so the records before it stay readable; as long as the disk refuses that,
  /// too, it takes no other record.
  void append(std::string_view record);

  /// From now on; at first it throws.
  void when_refused(WhenRefused what) { when_refused_ = what; }

  /// True when nothing was in the file when it was opened.
  bool is_new() const { return is_new_; }

 private:
  void cut_torn_line();
  bool take_back();
  void refuse(int reason);
  void tell_left_out(int reason);

  std::string path_;
  base::UniqueFd fd_;
  bool is_new_ = true;
  WhenRefused when_refused_ = WhenRefused::throws;
  bool is_told_ = false;  // that one was left out
  off_t torn_at_ = -1;    // where a part of a record begins that could not be taken back
  int torn_by_ = 0;       // why there was no more of it
};

}  // namespace lockstep::metrics
