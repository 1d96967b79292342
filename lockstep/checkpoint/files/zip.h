#pragma once

// A zip archive of stored entries, which is what torch.save writes (PKWARE's APPNOTE 6.3.3). Nothing is unpacked:
// an entry is a range of the file.

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/checkpoint/store/input_file.h"

namespace lockstep::checkpoint {

/// Bytes of a file.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

/// Any thread; reading changes nothing in the object.
class ZipArchive {
 public:
  /// Reads the list of entries at the file's end, with 64-bit fields where there are any. `file` must outlive this.
  /// UsageError naming file and offset when there is none, it lies outside the file or names an entry twice.
  explicit ZipArchive(const InputFile& file);

  bool has(const std::string& name) const { return entries_.contains(name); }

  /// The only folder with a file `name` ("archive" for "archive/data.pkl"); UsageError when there is none or more.
  std::string folder_of(const std::string& name) const;

  /// Where the entry's bytes lie. UsageError when there is none of this name, it is compressed or encrypted, or its own
  /// header says another thing than the list.
  Range range(const std::string& name) const;

  /// A small entry as text. UsageError when it has more than `most` bytes.
  std::string text(const std::string& name, std::uint64_t most) const;

 private:
  struct Entry {
    std::uint64_t listed = 0;  // where the list speaks of it
    std::uint64_t header = 0;
    std::uint64_t bytes = 0;
    std::uint64_t packed = 0;
    unsigned flags = 0;
    unsigned method = 0;
  };
  void add_entries(const std::string& list, std::uint64_t begin, std::uint64_t count);

  const InputFile& file_;
  std::uint64_t list_begin_ = 0;
  std::map<std::string, Entry> entries_;
};

}  // namespace lockstep::checkpoint
