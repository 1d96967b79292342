#include "lockstep/comm/reduce/reduce.h"

#include <cpuid.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/comm/reduce/kernels.h"

namespace lockstep::comm {
namespace {

// Not every compiler's __builtin_cpu_supports knows this name.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

struct Build {
  const char* name;
  ReduceKernel kernel;
  bool (*supported)();
};

constexpr Build kBuilds[] = {
    {"avx512", reduce_avx512, [] { return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"); }},
    {"avx2", reduce_avx2, [] { return __builtin_cpu_supports("avx2") && has_f16c(); }},
    {"scalar", reduce_scalar, [] { return true; }},
};

const Build& choose_build(const char* wanted) {
  for (const Build& build : kBuilds)
    if (build.supported() && (wanted == nullptr || std::string_view(wanted) == build.name)) return build;
  throw UsageError(std::string("LOCKSTEP_ISA=") + wanted + ": this machine offers avx512, avx2, scalar at best");
}

}  // namespace

void tree_reduce(const Reduction& reduction, const Buffers& buffers, std::size_t begin, std::size_t end) {
  static const Build& chosen = choose_build(std::getenv("LOCKSTEP_ISA"));
  chosen.kernel(reduction, buffers, begin, end);
}

std::vector<const char*> reduce_builds() {
  std::vector<const char*> names;
  for (const Build& build : kBuilds)
    if (build.supported()) names.push_back(build.name);
  return names;
}

void tree_reduce_by(const char* build, const Reduction& reduction, const Buffers& buffers, std::size_t begin,
                    std::size_t end) {
  choose_build(build).kernel(reduction, buffers, begin, end);
}

}  // namespace lockstep::comm
