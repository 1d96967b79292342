#pragma once

// Writes a zip archive of stored entries, as torch.save does: each entry's bytes begin at a multiple of 64 in the file,
// so that they can be used where they lie when it is mapped. Equal entries give equal bytes: no times.
//
// Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/base/atomic_file.h"

namespace lockstep::checkpoint {

class ZipWriter {
 public:
  /// The file appears with commit(), whole. `wide_from`: from which number on fields of 64 bits are used; a test makes
  /// it small. UsageError when the file cannot be written.
  explicit ZipWriter(const std::string& path, std::uint64_t wide_from = 0xffffffff);

  /// Error when the system refuses.
  void add(const std::string& name, const void* data, std::uint64_t bytes);
  void commit();

 private:
  void write(const std::string& bytes);

  base::AtomicFile file_;
  const std::uint64_t wide_from_;
  std::uint64_t written_ = 0;
  std::uint64_t count_ = 0;
  std::string list_;
};

}  // namespace lockstep::checkpoint
