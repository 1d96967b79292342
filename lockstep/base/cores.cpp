#include "lockstep/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/control_group.h"

namespace lockstep::base {

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

int usable_cores() {
  constexpr double unlimited = std::numeric_limits<int>::max();
  const double granted = std::ceil(control_group_cores().value_or(unlimited));
  return std::max(1, int(std::min(granted, double(affinity_cores()))));
}

}  // namespace lockstep::base
