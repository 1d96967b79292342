#include "lockstep/nn/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::nn {
namespace {

struct Build {
  const char* name;
  const Kernels* kernels;
  bool (*supported)();
};

constexpr Build kBuilds[] = {
    {"avx512", &kKernelsAvx512,
     [] { return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"); }},
    {"avx2", &kKernelsAvx2, [] { return __builtin_cpu_supports("avx2") != 0; }},
    {"scalar", &kKernelsScalar, [] { return true; }},
};

const Build& choose_build(const char* wanted) {
  for (const Build& build : kBuilds)
    if (build.supported() && (wanted == nullptr || std::string_view(wanted) == build.name)) return build;
  throw UsageError(std::string("LOCKSTEP_ISA=") + wanted + ": this machine offers avx512, avx2, scalar at best");
}

}  // namespace

// Enough for any number of threads, few enough that joining them costs nothing.
std::size_t chunks_of(const Planes& planes) {
  constexpr std::size_t kMost = 64, kLeast = 1 << 14;  // values in a chunk
  const std::size_t values = planes.outer * planes.channels * planes.inner;
  return std::clamp<std::size_t>(std::min(values / kLeast, planes.outer), 1, kMost);
}

const Kernels& kernels() {
  static const Build& chosen = choose_build(std::getenv("LOCKSTEP_ISA"));
  return *chosen.kernels;
}

std::vector<const char*> kernel_builds() {
  std::vector<const char*> names;
  for (const Build& build : kBuilds)
    if (build.supported()) names.push_back(build.name);
  return names;
}

const Kernels& kernels_by(const char* build) { return *choose_build(build).kernels; }

}  // namespace lockstep::nn
