#pragma once

// The bytes of a file, plain or unpacked from gzip.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

/// Not thread-safe. Every damage is a UsageError that names file and offset.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Reads `bytes` bytes, fewer only at the end of the content; returns how many.
  virtual std::size_t read(void* out, std::size_t bytes) = 0;

  /// The next byte read is the one at `offset`, which must lie inside the content. Cheap in a plain file; in
  /// a packed one everything before it is unpacked again.
  virtual void seek(std::uint64_t offset) = 0;

  /// The content cannot be longer than this: ask before taking memory for a size that the
  /// file itself declares.
  virtual std::uint64_t limit() const = 0;

  /// What is being read, for messages.
  virtual const std::string& path() const = 0;
};

/// Opens `path`: gzip when its name ends in .gz, else plain. A gzip file may be several, one behind the other (bgzip),
/// with zeros after the last, as Python's gzip reads it. UsageError when it cannot be
/// opened or is not a regular file.
std::unique_ptr<ByteSource> open_bytes(const std::string& path);

/// The bytes that unpacking `packed` gives, all its members together.
std::unique_ptr<ByteSource> gunzip(std::unique_ptr<ByteSource> packed);

/// Bytes that somebody else keeps; `name` stands for the path in messages.
std::unique_ptr<ByteSource> memory_bytes(std::span<const std::uint8_t> bytes, std::string name);

/// Throws when the first 16 bytes of a file (fewer of a shorter one) show that the rest is not wanted.
using BeginningCheck = std::function<void(std::span<const std::uint8_t> beginning)>;

/// All bytes of the file `path` as they are, whatever its name. UsageError as above and when there are more than
/// `most`; memory is taken after that and after `check`.
std::vector<std::uint8_t> read_bytes(const std::string& path, std::uint64_t most, const BeginningCheck& check = {});

}  // namespace lockstep::data
