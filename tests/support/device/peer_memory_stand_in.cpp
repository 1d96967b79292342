#include "tests/support/device/peer_memory_stand_in.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

namespace lockstep::testing::sim {
namespace {

constexpr int kRefused = 1;

struct Area {
  std::size_t bytes = 0;
  int file = -1;  // -1: another process's
};

std::mutex areas_mutex;
std::map<void*, Area> areas;

int map_area(void** memory, int file, std::size_t bytes, bool own) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return kRefused;
  const std::lock_guard lock(areas_mutex);
  areas[mapped] = {bytes, own ? file : -1};
  *memory = mapped;
  return 0;
}

int allocate_area(void** memory, std::size_t bytes) {
  const int file = memfd_create("peer memory stand-in", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, off_t(bytes)) != 0) return kRefused;
  return map_area(memory, file, bytes, true);
}

int handle_of_area(lockstep::device::MemoryHandle* handle, void* memory) {
  const std::lock_guard lock(areas_mutex);
  const auto found = areas.find(memory);
  if (found == areas.end() || found->second.file < 0) return kRefused;
  std::snprintf(handle->bytes, sizeof handle->bytes, "%d %d %zu", int(getpid()), found->second.file,
                found->second.bytes);
  return 0;
}

int open_area(void** memory, lockstep::device::MemoryHandle handle, unsigned flags) {
  int process = 0, number = 0;
  std::size_t bytes = 0;
  if (flags != lockstep::device::kWithPeerAccess ||
      std::sscanf(handle.bytes, "%d %d %zu", &process, &number, &bytes) != 3 || process == getpid())
    return kRefused;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", process, number);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return kRefused;
  const int error = map_area(memory, file, bytes, false);
  close(file);
  return error;
}

int close_area(void* memory) {
  const std::lock_guard lock(areas_mutex);
  const auto found = areas.find(memory);
  if (found == areas.end() || found->second.file >= 0) return kRefused;
  munmap(memory, found->second.bytes);
  areas.erase(found);
  return 0;
}

int enable_all(int device, unsigned flags) { return 0; }
int no_last_error() { return 0; }
const char* words_of_error(int error) { return error == kRefused ? "refused by the stand-in" : "no error"; }

}  // namespace

lockstep::device::PeerMemory peer_memory() {
  return {.allocate = allocate_area,
          .handle_of = handle_of_area,
          .open_handle = open_area,
          .close_handle = close_area,
          .enable_peer_access = enable_all,
          .last_error = no_last_error,
          .error_string = words_of_error};
}

int opened_areas() {
  const std::lock_guard lock(areas_mutex);
  int opened = 0;
  for (const auto& [memory, area] : areas) opened += area.file < 0 ? 1 : 0;
  return opened;
}

}  // namespace lockstep::testing::sim
