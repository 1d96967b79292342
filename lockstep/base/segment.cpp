#include "lockstep/base/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "lockstep/base/byte_lock.h"
#include "lockstep/base/control_group.h"

namespace lockstep::base {
namespace {

constexpr std::size_t kHugePage = std::size_t(2) << 20;
static_assert(Extent::kUnit == kHugePage);

// Between the path and the generation of an invitation: no character of "/proc/PID/fd/N".
constexpr char kGenerationMark = '#';

std::size_t round_up(std::size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

void* map_or_throw(int fd, std::size_t offset, std::size_t bytes, Access access) {
  const int protection = access == Access::read_write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED, fd, off_t(offset));
  if (data == MAP_FAILED) throw_errno("segment: cannot map " + std::to_string(bytes) + " bytes");
  return data;
}

// fallocate that reports a file size limit as an error instead of a signal.
int allocate(int fd, std::size_t offset, std::size_t bytes) {
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &ignore, &before);
  int result = -1;
  do {
    result = fallocate(fd, 0, off_t(offset), off_t(bytes));
  } while (result != 0 && errno == EINTR);
  const int error = errno;
  sigaction(SIGXFSZ, &before, nullptr);
  errno = error;
  return result;
}

// Takes the memory of a part of the segment, mapped at `mapping`, in huge pages where the kernel can (once and for all
// processes) and in small ones else: an old kernel, a ban or scattered memory, which serve as well, slower. False, with
// errno, when there is not enough.
bool take_memory(int fd, std::size_t offset, const Mapping& mapping) {
  constexpr int collapse = 25;  // MADV_COLLAPSE, Linux 6.1; older headers do not name it
  constexpr std::size_t small = 4096;
  // A call ends at the first huge page that cannot be had, and looking for one takes its time:
  // pieces bound what one failure leaves behind, and how often there is a search in vain.
  constexpr std::size_t piece = 16 * kHugePage;
  for (std::size_t begin = 0; begin < mapping.bytes(); begin += piece) {
    const std::size_t end = std::min(begin + piece, mapping.bytes());
    // Where one small page is, the kernel clears a huge one and puts it in its place. Where all are, it copies them,
    // ten times slower; where none is, it does nothing.
    for (std::size_t at = begin; at < end; at += kHugePage)
      if (allocate(fd, offset + at + kHugePage - small, small) != 0) return false;
    madvise(mapping.data() + begin, end - begin, collapse);
    if (allocate(fd, offset + begin, end - begin) != 0) return false;
  }
  return true;
}

// What the area may grow to where it lies: nobody else is there.
std::size_t room_of(const Segment& segment, Area area) {
  const std::size_t room = segment.control().rooms[std::size_t(area)].load(std::memory_order_acquire);
  return std::max(room, segment.extent(area).bytes);
}

// Takes the memory of `place`, of which `missing` bytes are not there yet.
Mapping take_range(const Segment& segment, const Extent& place, std::size_t missing) {
  const auto too_small = [&](const std::string& why) {
    return UsageError("shared memory too small: the segment needs " + std::to_string(missing >> 20) + " MiB more, " +
                      why);
  };
  const std::size_t available = available_memory();
  if (missing > available) throw too_small("this machine has " + std::to_string(available >> 20) + " MiB available");
  Mapping mapping = segment.map(place.offset, place.bytes, Access::read_write);
  if (!take_memory(segment.fd(), place.offset, mapping)) throw too_small(std::strerror(errno));
  return mapping;
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Segment::Segment(UniqueFd fd, Mapping control_mapping, ControlPage* control, Holders holders)
    : fd_(std::move(fd)),
      control_mapping_(std::move(control_mapping)),
      control_(control),
      holders_(holders),
      generation_(control->generation.load(std::memory_order_acquire)) {}

Segment Segment::create(int local_world, Holders holders) {
  UniqueFd fd(memfd_create("lockstep-segment", MFD_CLOEXEC));
  if (!fd) throw_errno("segment: memfd_create");
  if (allocate(fd.get(), 0, kControlBytes) != 0) throw_errno("segment: cannot allocate the control page");
  Mapping mapping(map_or_throw(fd.get(), 0, kControlBytes, Access::read_write), kControlBytes);
  ControlPage* control = format_control_page(mapping.data(), local_world);
  return Segment(std::move(fd), std::move(mapping), control, holders);
}

Segment Segment::adopt(UniqueFd fd, int local_world) {
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) throw_errno("segment: fstat");
  if (std::size_t(status.st_size) < kControlBytes) throw Error("segment: too short for a control page");
  Mapping mapping(map_or_throw(fd.get(), 0, kControlBytes, Access::read_write), kControlBytes);
  ControlPage* control = check_control_page(mapping.data(), local_world);
  return Segment(std::move(fd), std::move(mapping), control, Holders::many);
}

Segment Segment::open(const std::string& path, int local_world) {
  const std::size_t mark = std::min(path.find(kGenerationMark), path.size());
  const std::string file = path.substr(0, mark);
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) throw_errno("segment: cannot open " + file + " (is the agent that made it still alive?)");
  Segment segment = adopt(std::move(fd), local_world);
  if (mark < path.size()) segment.generation_ = std::uint32_t(std::strtoul(path.c_str() + mark + 1, nullptr, 10));
  return segment;
}

std::string Segment::path() const { return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_.get()); }

std::string Segment::invitation() const { return path() + kGenerationMark + std::to_string(generation_); }

void Segment::hold() {
  lock_byte(fd_.get(), kHoldByte);
  // In this order: next_generation() first moves the generation and then looks who holds.
  if (control_->generation.load(std::memory_order_seq_cst) != generation_)
    throw Error("this process was started for attempt " + std::to_string(generation_) +
                " of its job, which is over; the job goes on without it");
}

bool Segment::is_held() const { return is_byte_locked(fd_.get(), kHoldByte); }

Extent Segment::extent(Area area) const {
  return Extent::unpack(control_->areas[std::size_t(area)].load(std::memory_order_acquire));
}

// Where it is, if it is long enough and has the room, or can go on there, being the last one; else behind all others.
Extent Segment::place_for(Area area, std::size_t bytes, std::size_t room) const {
  const Extent now = extent(area);
  std::size_t end = round_up(kControlBytes);
  for (int other = 0; other < kAreas; ++other)
    if (Area(other) != area) end = std::max(end, extent(Area(other)).offset + room_of(*this, Area(other)));
  const std::size_t has = room_of(*this, area);
  const bool stays = (now.bytes >= bytes && has >= room) || (now.bytes > 0 && now.offset >= end);
  return stays ? Extent{now.offset, std::max(now.bytes, bytes)} : Extent{std::max(end, now.offset + has), bytes};
}

std::size_t Segment::grow(Area area, std::size_t bytes, std::size_t room) {
  const Extent before = extent(area);
  const std::size_t wanted_room = round_up(std::max(bytes, room));
  const Extent place = place_for(area, round_up(bytes), wanted_room);
  // A process that died here may have left memory behind the last area, which is as good as new.
  struct stat status {};
  if (fstat(fd_.get(), &status) != 0) throw_errno("segment: fstat");
  const std::size_t missing = place.end() - std::clamp(std::size_t(status.st_size), place.offset, place.end());
  const Mapping mapping = take_range(*this, place, missing);
  if (place.bytes > missing) std::memset(mapping.data(), 0, place.bytes - missing);
  const bool stays = before.bytes > 0 && before.offset == place.offset;
  const std::size_t new_room = stays ? std::max(wanted_room, room_of(*this, area)) : wanted_room;
  // Two words: whoever dies between them leaves the old room, behind which nobody is either. What has moved, or goes on
  // where it is, is the last one.
  control_->areas[std::size_t(area)].store(place.pack(), std::memory_order_release);
  control_->rooms[std::size_t(area)].store(new_room, std::memory_order_release);
  // What has moved leaves a hole; for whoever dies before it is made, next_generation() makes it.
  if (before.bytes > 0 && !stays)
    fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(before.offset), off_t(before.bytes));
  return place.offset;
}

void Segment::extend(Area area, std::size_t bytes) {
  const Extent before = extent(area);
  const std::size_t wanted = round_up(bytes);
  if (wanted <= before.bytes) return;
  if (const std::size_t room = room_of(*this, area); wanted > room)
    throw Error("segment: it was made with room for " + std::to_string(room >> 20) + " MiB of state, and needs " +
                std::to_string(wanted >> 20) + " MiB; start a new job");
  const Extent more{before.end(), wanted - before.bytes};
  take_range(*this, more, more.bytes);
  control_->areas[std::size_t(area)].store(Extent{before.offset, wanted}.pack(), std::memory_order_release);
}

Mapping Segment::map(std::size_t offset, std::size_t bytes, Access access) const {
  // An address on a 2 MiB edge, so that huge pages can back it: reserve more, map inside.
  const std::size_t length = round_up(bytes);
  void* reserved = mmap(nullptr, length + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) throw_errno("segment: no address space for " + std::to_string(length) + " bytes");
  auto* begin = static_cast<std::byte*>(reserved);
  auto* aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::size_t>(begin)));
  const int protection = access == Access::read_write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = mmap(aligned, length, protection, MAP_SHARED | MAP_FIXED, fd_.get(), off_t(offset));
  if (data == MAP_FAILED) {
    const int error = errno;
    munmap(reserved, length + kHugePage);
    errno = error;
    throw_errno("segment: cannot map " + std::to_string(bytes) + " bytes");
  }
  if (aligned > begin) munmap(begin, std::size_t(aligned - begin));
  if (std::byte* end = begin + length + kHugePage; end > aligned + length)
    munmap(aligned + length, std::size_t(end - (aligned + length)));
  // Only advice: where there are no huge pages in this range, small ones serve.
  madvise(data, length, MADV_HUGEPAGE);
  return Mapping(data, length);
}

std::string page_size(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::size_t>(address);
  bool inside = false;
  std::size_t resident = 0;
  for (std::string line; std::getline(maps, line);) {
    std::size_t begin = 0;
    std::size_t end = 0;
    if (sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2) {
      if (inside) break;
      inside = begin <= wanted && wanted < end;
    } else if (inside) {
      std::istringstream fields(line);
      std::string key;
      std::size_t kib = 0;
      fields >> key >> kib;
      if (key == "Rss:") resident = kib;
      if (key == "ShmemPmdMapped:") return kib == 0 ? "4 KiB" : kib >= resident ? "2 MiB" : "mixed";
    }
  }
  return "4 KiB";
}

std::size_t available_memory() {
  std::size_t available = std::numeric_limits<std::size_t>::max();
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    std::size_t kib = 0;
    if (sscanf(line.c_str(), "MemAvailable: %zu kB", &kib) == 1) available = kib << 10;
  }
  for (const MemoryGroup& group : limited_memory_groups()) available = std::min(available, std::size_t(group.room()));
  return available;
}

}  // namespace lockstep::base
