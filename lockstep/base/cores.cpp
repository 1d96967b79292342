#include "lockstep/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lockstep/base/control_group.h"

namespace lockstep::base {
namespace {

// The cores in the affinities of all the processes, 0 being this thread; ascending.
std::vector<int> affinity_of(const std::vector<int>& processes) {
  // A set of fixed size is too small for machines with more than 1,024 cores.
  for (int capacity = 1024; capacity <= (1 << 18); capacity *= 2) {
    cpu_set_t* all = CPU_ALLOC(capacity);
    cpu_set_t* set = CPU_ALLOC(capacity);
    const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, all);
    for (const int process : processes)
      if (sched_getaffinity(process, bytes, set) == 0) CPU_OR_S(bytes, all, all, set);
    std::vector<int> cores;
    for (int core = 0; core < capacity; ++core)
      if (CPU_ISSET_S(std::size_t(core), bytes, all)) cores.push_back(core);
    CPU_FREE(all);
    CPU_FREE(set);
    if (!cores.empty()) return cores;
  }
  return {};
}

int affinity_cores_of(const std::vector<int>& processes) { return std::max(1, int(affinity_of(processes).size())); }

std::string counted(std::int64_t number, const std::string& noun, const std::string& plural) {
  return std::to_string(number) + " " + (number == 1 ? noun : plural);
}

}  // namespace

int affinity_cores() { return affinity_cores_of({0}); }

std::vector<int> affinity_list() { return affinity_of({0}); }

int usable_cores() { return usable_cores({0}); }

int usable_cores(const std::vector<int>& processes) {
  return usable_of(affinity_cores_of(processes), control_group_cores());
}

int usable_of(int affinity, std::optional<double> granted) {
  const double limit = granted ? std::ceil(*granted) : affinity;
  return std::max(1, int(std::min(limit, double(affinity))));
}

std::string idle_cores_text(int processes, int threads, int cores) {
  const std::int64_t busy = std::int64_t(processes) * threads;
  if (busy >= cores) return "";
  return counted(processes, "process", "processes") + " of " + counted(threads, "thread", "threads") + " use " +
         std::to_string(busy) + " of " + counted(cores, "core", "cores");
}

}  // namespace lockstep::base
