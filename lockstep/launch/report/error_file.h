#pragma once

// The file in which a worker leaves its exception (TORCHELASTIC_ERROR_FILE), in torchelastic's
// form: {"message": {"message": "...", "extraInfo": {"py_callstack": "...", ...}}}.

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {

/// What a worker says of its end.
struct WorkerError {
  std::string message;    ///< "ValueError: bad", or what() of a C++ exception
  std::string traceback;  ///< Python's, or empty
};

/// Pure. Nothing when the text is not torchelastic's JSON; an older form, whose message is a
/// string, is read too.
std::optional<WorkerError> parse_worker_error(std::string_view json);

class ErrorFile {
 public:
  /// In memory, reachable as `/proc/<pid>/fd/<n>`: nothing is left on a disk, and a full one does
  /// not lose it. Throws Error.
  ErrorFile();
  /// At this path, which need not exist.
  explicit ErrorFile(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  /// When it was last written, in seconds since the epoch; nothing while it is empty.
  std::optional<double> written() const;
  /// What it says; nothing when it is empty or not to be understood. At most 1 MiB is read.
  std::optional<WorkerError> read() const;

 private:
  base::UniqueFd memory_;  // invalid for a file with a name
  std::string path_;
};

}  // namespace lockstep::launch
