#include "lockstep/base/core_binding.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

#include "lockstep/base/control_group.h"
#include "lockstep/base/error.h"

namespace lockstep::base {
namespace {

// More than any Linux kernel knows (NR_CPUS is 8192 at most).
constexpr int kMostCores = 16384;

class CoreSet {
 public:
  CoreSet() : set_(CPU_ALLOC(kMostCores)) { CPU_ZERO_S(bytes(), set_); }
  CoreSet(const CoreSet&) = delete;
  CoreSet& operator=(const CoreSet&) = delete;
  ~CoreSet() { CPU_FREE(set_); }

  void load() {
    if (sched_getaffinity(0, bytes(), set_) != 0) throw_errno("sched_getaffinity");
  }
  void apply() const {
    if (sched_setaffinity(0, bytes(), set_) != 0) throw_errno("binding to cores");
  }
  void add(int core) { CPU_SET_S(std::size_t(core), bytes(), set_); }
  std::vector<int> cores() const {
    std::vector<int> found;
    for (int core = 0; core < kMostCores; ++core)
      if (CPU_ISSET_S(std::size_t(core), bytes(), set_)) found.push_back(core);
    return found;
  }

 private:
  static std::size_t bytes() { return CPU_ALLOC_SIZE(kMostCores); }
  cpu_set_t* set_;
};

// What the process was given; set once, by the first binding, and never freed: threads may ask until the end.
std::atomic<const CoreSet*> given = nullptr;

}  // namespace

std::vector<int> cores_of_rank(const std::vector<int>& allowed, int local_rank, int local_size, int threads) {
  if (allowed.size() < std::size_t(local_size) * std::size_t(threads)) return {};
  const auto first = allowed.begin() + std::ptrdiff_t(local_rank) * threads;
  return {first, first + threads};
}

void bind_to_own_cores(int local_rank, int local_size, int threads) {
  auto* const allowed = new CoreSet;
  allowed->load();
  const CoreSet* none = nullptr;
  if (!given.compare_exchange_strong(none, allowed)) delete allowed;
  const std::vector<int> cores = given.load()->cores();
  if (int(cores.size()) <= threads && local_size > 1) return;
  const std::vector<int> mine = cores_of_rank(cores, local_rank, local_size, threads);
  const double usable = std::min(double(cores.size()), std::ceil(control_group_cores().value_or(kMostCores)));
  if (mine.empty() || usable < double(local_size) * threads)
    throw UsageError("binding to cores: " + std::to_string(local_size) + " processes with " + std::to_string(threads) +
                     " computing threads each, but " + std::to_string(int(usable)) +
                     " usable cores; start fewer, or do not bind");
  CoreSet own;
  for (int core : mine) own.add(core);
  own.apply();
}

void leave_own_cores() {
  if (const CoreSet* const all = given.load()) all->apply();
}

}  // namespace lockstep::base
