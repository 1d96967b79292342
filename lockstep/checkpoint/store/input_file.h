#pragma once

// A file to be read at known places; every fault names file and offset.

#include <cstdint>
#include <string>

#include "lockstep/base/unique_fd.h"

namespace lockstep::checkpoint {

/// Any thread; reading changes nothing in the object.
class InputFile {
 public:
  /// UsageError when there is no such file or it is not a regular one. A pipe in its place is refused, not waited for.
  explicit InputFile(const std::string& path);

  std::uint64_t size() const { return size_; }

  /// UsageError when the file has become shorter, or the system refuses.
  void read(std::uint64_t offset, void* out, std::uint64_t bytes) const;

  /// A part of the file, which must lie within it: whoever asks has compared it with size().
  std::string bytes(std::uint64_t offset, std::uint64_t count) const;

  /// All of a small file. UsageError when it has more than `most` bytes.
  std::string text(std::uint64_t most) const;

  /// Has the next reads come from the disk, where the file lies on one.
  void drop_cache() const;

  [[noreturn]] void fail(std::uint64_t offset, const std::string& what) const;

 private:
  std::string path_;
  base::UniqueFd fd_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep::checkpoint
