#include "lockstep/train/memory_use.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace lockstep::train {

std::int64_t private_memory() {
  std::ifstream file("/proc/self/statm");
  std::int64_t size = 0, resident = 0, shared = 0;  // in pages
  if (!(file >> size >> resident >> shared)) return 0;
  return std::max<std::int64_t>(resident - shared, 0) * sysconf(_SC_PAGESIZE);
}

}  // namespace lockstep::train
