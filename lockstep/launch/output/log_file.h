#pragma once

// The file that one stream is written to, and which part of it is whole lines. It is also the
// buffer, without bound in memory, of everyone who copies from it (log_follower.h).
//
// A line ends at "\n", or at "\r" not followed by "\n" (progress bars). Not thread-safe.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {

/// Where the first line of `bytes` ends, behind its "\n", "\r\n" or "\r"; npos when it does not
/// end in them. A last "\r" is undecided, and no end unless `final`: nothing follows.
std::size_t line_end(std::string_view bytes, bool final);

/// How files are opened: empty, or with what is in them, which counts as whole lines.
enum class Files { anew, go_on };

class LogFile {
 public:
  /// Opens `path`, or a new file without a name in TMPDIR when it is empty. UsageError naming
  /// path and reason.
  explicit LogFile(std::string path, Files files = Files::anew);

  /// Writes at the end. It never fails: what a full or broken disk does not take is counted
  /// as missing, and each later call tries again, noting the gap in the file first.
  void append(std::string_view bytes);
  /// No more will come: what is there is whole, even without a line end.
  void end();

  /// Bytes in whole lines, from the start of the file.
  off_t whole() const { return whole_; }
  /// Reads from `offset`, at most the size of `buffer`; what it read, empty when the file was
  /// cut by others.
  std::string_view read(off_t offset, std::string& buffer) const;
  /// A file without a name gives back the space before `offset`.
  void forget(off_t offset);

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  /// The last write error, 0 when there was none.
  int error() const { return error_; }
  /// Bytes that the file has no room for, in all; and those not noted in the file.
  std::uint64_t missing() const { return missing_; }
  std::uint64_t unnoted() const { return unnoted_; }

 private:
  bool write_note();
  std::size_t put(std::string_view bytes);
  void mark(off_t start, std::string_view bytes);

  std::string path_;
  base::UniqueFd fd_;
  off_t written_ = 0;
  off_t whole_ = 0;
  off_t forgotten_ = 0;
  char last_ = '\n';  // the last byte written
  int error_ = 0;
  std::uint64_t missing_ = 0;
  std::uint64_t unnoted_ = 0;
};

}  // namespace lockstep::launch
