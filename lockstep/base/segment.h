#pragma once

// A node's shared memory: an anonymous memfd that begins with the control page and is
// grown, never shrunk. It has no name in any file system, so nothing can be left behind:
// the kernel frees it with its last holder.
//
//   [control page][staging areas of the Group][state region]
//
// Not thread-safe; one Segment object per rank.

#include <cstddef>
#include <string>

#include "lockstep/base/control_page.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::base {

/// A mapping of a part of the segment; unmapped on destruction. Move only.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

enum class Access { read_only, read_write };

class Segment {
 public:
  /// A new segment with a formatted control page. The descriptor is close-on-exec.
  static Segment create(int local_world);
  /// Opens another process's segment by path (the value of LOCKSTEP_SEGMENT).
  static Segment open(const std::string& path, int local_world);
  /// Takes over a descriptor received from another process.
  static Segment adopt(UniqueFd fd, int local_world);

  ControlPage& control() const { return *control_; }
  int fd() const { return fd_.get(); }
  /// A path by which other processes of this user can open() it while this one lives.
  std::string path() const;

  /// Appends `bytes` (rounded up to 2 MiB, on a 2 MiB edge) and returns their offset. All
  /// memory is taken now: too little is a UsageError here, not a bus error later. One rank
  /// (local rank 0) calls it; it says the new size in control().bytes. The memory is moved into
  /// huge pages where the kernel can (Linux 6.1 or newer); page_size() tells.
  std::size_t grow(std::size_t bytes);

  /// Maps [offset, offset + bytes). Asks for huge pages; see page_size().
  Mapping map(std::size_t offset, std::size_t bytes, Access access) const;

 private:
  Segment(UniqueFd fd, Mapping control_mapping, ControlPage* control);

  UniqueFd fd_;
  Mapping control_mapping_;
  ControlPage* control_ = nullptr;
};

/// The page size the kernel really uses for the (touched) mapping at `address`: "4 KiB",
/// "2 MiB" when all of it is huge, or "mixed".
std::string page_size(const void* address);

/// Bytes of memory this process may still take: the smaller of what the machine has
/// available and what its control groups allow.
std::size_t available_memory();

}  // namespace lockstep::base
