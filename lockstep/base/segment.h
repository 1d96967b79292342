#pragma once

// A node's shared memory: an anonymous memfd that begins with the control page and has
// areas behind it, which grow on their own (control_page.h, Area). It has no name in any file
// system, so nothing can be left behind: the kernel frees it with its last holder.
//
// Not thread-safe; one Segment object per rank.

#include <cstddef>
#include <cstdint>
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

/// Who may hold a segment: many processes, so that what is in it can outlive each of them; or only the one that
/// made it, with whose life it ends.
enum class Holders { many, this_process };

class Segment {
 public:
  /// The byte that whoever takes part has locked (byte_lock.h); those behind it are pins (pin.h).
  static constexpr std::int64_t kHoldByte = 0;

  /// A new segment with a formatted control page. The descriptor is close-on-exec.
  static Segment create(int local_world, Holders holders = Holders::many);
  /// Opens another process's segment by path or invitation (the value of LOCKSTEP_SEGMENT).
  static Segment open(const std::string& path, int local_world);
  /// Takes over a descriptor received from another process.
  static Segment adopt(UniqueFd fd, int local_world);

  ControlPage& control() const { return *control_; }
  int fd() const { return fd_.get(); }
  Holders holders() const { return holders_; }
  /// A path by which other processes of this user can open() it while this one lives.
  std::string path() const;
  /// The same for the ranks of the page's generation only: who comes with it later, has no seat (see hold).
  std::string invitation() const;

  /// The generation it was made or opened for; the page may be further.
  std::uint32_t generation() const { return generation_; }
  /// Takes part in the generation for which the segment was made or opened: from now on others can tell that somebody
  /// lives who may write into it. That is a lock (byte_lock.h), so it ends with the last mapping and descriptor,
  /// however the process ends, and a child that is forked keeps it. Throws Error when the next generation has begun.
  /// Whoever takes a seat holds first (node.h); who only looks need not.
  void hold();
  /// Whether others hold it.
  bool is_held() const;

  /// Makes the area at least `bytes` long (rounded up to 2 MiB, on a 2 MiB edge) and returns its offset. All its bytes
  /// are zero then: an area that is long enough already, left by somebody who died before it was of use, is cleared;
  /// one that is too short gives its memory back. All memory is taken now: too little is a UsageError here, not a bus
  /// error later. One rank (local rank 0) calls it, while nobody uses the area. The memory is moved
  /// into huge pages where the kernel can (Linux 6.1 or newer); page_size() tells.
  /// Where `room` is more than `bytes` no other area comes nearer than that, so that extend() can go on as far: a range
  /// of the file, no memory.
  std::size_t grow(Area area, std::size_t bytes, std::size_t room = 0);
  /// Makes an area that is in use at least `bytes` long, where it lies. What is in it stays: who has mapped or pinned
  /// it notices nothing; what is new is zeros, and its memory is taken as in grow(). Whoever dies meanwhile leaves the
  /// area as it was or as it is to be. One rank calls it, before any maps what is new. Error when that is more than its
  /// room.
  void extend(Area area, std::size_t bytes);
  Extent extent(Area area) const;

  /// Maps [offset, offset + bytes). Asks for huge pages; see page_size().
  Mapping map(std::size_t offset, std::size_t bytes, Access access) const;

 private:
  Segment(UniqueFd fd, Mapping control_mapping, ControlPage* control, Holders holders);
  friend Segment next_generation(Segment&& segment, int local_world);
  Extent place_for(Area area, std::size_t bytes, std::size_t room) const;

  UniqueFd fd_;
  Mapping control_mapping_;
  ControlPage* control_ = nullptr;
  Holders holders_;
  std::uint32_t generation_;  ///< the one it was made or opened for
};

/// The page size the kernel really uses for the (touched) mapping at `address`: "4 KiB",
/// "2 MiB" when all of it is huge, or "mixed".
std::string page_size(const void* address);

/// Bytes of memory this process may still take: the smaller of what the machine has
/// available and what its control groups allow.
std::size_t available_memory();

}  // namespace lockstep::base
