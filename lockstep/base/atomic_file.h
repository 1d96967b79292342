#pragma once

// A file that appears whole or not at all: written under another name in the same folder,
// synced, renamed over the target, and the folder synced. Until commit() the old file is
// untouched; without commit() nothing stays behind.
//
// Not thread-safe. Two writers of one path do not disturb each other; the last commit wins.

#include <cstddef>
#include <string>

#include "lockstep/base/unique_fd.h"

namespace lockstep::base {

class AtomicFile {
 public:
  /// Opens the file aside. UsageError when the target cannot be written: no such folder, no
  /// permission, or the target is a folder.
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// Appends. Error when the system refuses (disk full).
  void write(const void* data, std::size_t bytes);

  /// Makes the file appear under its name, on disk when this returns. Call once, last.
  void commit();

 private:
  std::string path_;
  std::string aside_;  // empty once committed
  UniqueFd fd_;
};

}  // namespace lockstep::base
