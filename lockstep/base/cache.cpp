#include "lockstep/base/cache.h"

#include <unistd.h>

#include <fstream>

namespace lockstep::base {
namespace {

// The kernel's word comes first: in virtual machines sysconf reads the size of the host's whole
// package from the CPU (320 MiB where this machine's cores share 32).
std::size_t read_last_level_cache() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::size_t kib = 0;
  if (file >> kib && kib > 0) return kib << 10;
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? std::size_t(bytes) : std::size_t(32) << 20;
}

}  // namespace

std::size_t last_level_cache() {
  static const std::size_t bytes = read_last_level_cache();
  return bytes;
}

}  // namespace lockstep::base
