#include "lockstep/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

namespace lockstep::base {
namespace {

// The tightest limit from this process's control group (version 2) up to the root.
int control_group_cores(int otherwise) {
  int cores = otherwise;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    std::string group = line.substr(3);
    for (;;) {
      std::ifstream file("/sys/fs/cgroup" + group + "/cpu.max");
      std::string text;
      if (std::getline(file, text))
        if (const int limit = cores_of_cpu_max(text); limit > 0) cores = std::min(cores, limit);
      if (group.empty() || group == "/") break;
      group.resize(group.rfind('/'));
    }
  }
  return cores;
}

int affinity_cores() {
  // A set of fixed size is too small for machines with more than 1,024 cores.
  for (int capacity = 1024; capacity <= (1 << 18); capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int cores = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return cores;
  }
  return 1;
}

}  // namespace

int cores_of_cpu_max(std::string_view text) {
  double quota = 0;
  double period = 0;
  if (std::sscanf(std::string(text).c_str(), "%lf %lf", &quota, &period) != 2 || quota <= 0 || period <= 0) return 0;
  const double cores = quota / period;
  return std::max(1, int(cores) + (cores > double(int(cores)) ? 1 : 0));
}

int usable_cores() { return std::max(1, control_group_cores(affinity_cores())); }

}  // namespace lockstep::base
