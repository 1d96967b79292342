#pragma once

// A file that is being downloaded: `<target>.part`, kept when the download is interrupted.

#include <chrono>
#include <cstdint>
#include <string>

#include "lockstep/base/unique_fd.h"

namespace lockstep::data {

/// Locked: of several processes one writes, the others wait. Not thread-safe. Every failure of the
/// system (disk full) is an Error, and leaves what has been written.
class PartFile {
 public:
  /// Opens or makes it. UsageError when that cannot be done (no permission); Error when another process
  /// has it and it has not changed for `patience`.
  PartFile(std::string target, std::chrono::milliseconds patience);
  PartFile(const PartFile&) = delete;
  /// Removes it when there is nothing in it.
  ~PartFile();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }

  void append(const void* bytes, std::size_t count);
  /// Throws away what is in it.
  void restart();

  /// One of these ends its life: it becomes the target, on disk when this returns, or is gone.
  void become_target();
  void remove();

 private:
  bool try_to_open(std::uint64_t& seen);

  std::string target_;
  std::string path_;
  base::UniqueFd fd_;
  std::uint64_t size_ = 0;
};

/// Brings the names in a folder to disk.
void sync_folder(const std::string& folder);

}  // namespace lockstep::data
