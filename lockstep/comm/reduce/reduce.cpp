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
  ReduceKernel reduce;
  WidenKernel widen;
  NarrowKernel narrow;
  bool (*supported)();
};

constexpr Build kBuilds[] = {
    {"avx512", reduce_avx512, widen_avx512, narrow_avx512,
     [] { return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"); }},
    {"avx2", reduce_avx2, widen_avx2, narrow_avx2, [] { return __builtin_cpu_supports("avx2") && has_f16c(); }},
    {"scalar", reduce_scalar, widen_scalar, narrow_scalar, [] { return true; }},
};

const Build& choose_build(const char* wanted) {
  for (const Build& build : kBuilds)
    if (build.supported() && (wanted == nullptr || std::string_view(wanted) == build.name)) return build;
  throw UsageError(std::string("LOCKSTEP_ISA=") + wanted + ": this machine offers avx512, avx2, scalar at best");
}

const Build& chosen_build() {
  static const Build& chosen = choose_build(std::getenv("LOCKSTEP_ISA"));
  return chosen;
}

}  // namespace

void tree_reduce(const Reduction& reduction, const Buffers& buffers, std::size_t begin, std::size_t end) {
  chosen_build().reduce(reduction, buffers, begin, end);
}

void widen(Element element, const std::byte* from, std::size_t elements, float* to) {
  chosen_build().widen(element, from, elements, to);
}

void narrow(Element element, const float* from, std::size_t elements, std::byte* to) {
  chosen_build().narrow(element, from, elements, to);
}

std::vector<const char*> reduce_builds() {
  std::vector<const char*> names;
  for (const Build& build : kBuilds)
    if (build.supported()) names.push_back(build.name);
  return names;
}

void tree_reduce_by(const char* build, const Reduction& reduction, const Buffers& buffers, std::size_t begin,
                    std::size_t end) {
  choose_build(build).reduce(reduction, buffers, begin, end);
}

void widen_by(const char* build, Element element, const std::byte* from, std::size_t elements, float* to) {
  choose_build(build).widen(element, from, elements, to);
}

void narrow_by(const char* build, Element element, const float* from, std::size_t elements, std::byte* to) {
  choose_build(build).narrow(element, from, elements, to);
}

}  // namespace lockstep::comm
