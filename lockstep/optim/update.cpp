#include "lockstep/optim/update.h"

#include <cstdlib>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/optim/kernels.h"

namespace lockstep::optim {
namespace {

struct Build {
  const char* name;
  Kernel* update;
  bool (*supported)();
};

constexpr Build kBuilds[] = {
    {"avx512", update_avx512, [] { return __builtin_cpu_supports("avx512f") != 0; }},
    {"avx2", update_avx2, [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
    {"scalar", update_scalar, [] { return true; }},
};

const Build& choose_build() {
  const char* wanted = std::getenv("LOCKSTEP_ISA");
  for (const Build& build : kBuilds)
    if (build.supported() && (wanted == nullptr || std::string_view(wanted) == build.name)) return build;
  throw UsageError(std::string("LOCKSTEP_ISA=") + wanted + ": this machine offers avx512, avx2, scalar at best");
}

const Build& build() {
  static const Build& chosen = choose_build();
  return chosen;
}

}  // namespace

const char* to_string(Stores stores) { return stores == Stores::plain ? "plain" : "streaming"; }

void update(const Rule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, Stores stores) {
  const auto numbers = [](const auto& alternative) -> const void* { return &alternative; };
  build().update(rule.index(), std::visit(numbers, rule), arrays, begin, end, stores == Stores::streaming);
}

void read_back(const Arrays& arrays, std::size_t begin, std::size_t end) {
  const bool copies = arrays.to_bf16 != nullptr;
  const std::size_t width = copies ? sizeof *arrays.to_bf16 : sizeof *arrays.to_weights;
  const auto* bytes = copies ? reinterpret_cast<const std::byte*>(arrays.to_bf16)
                             : reinterpret_cast<const std::byte*>(arrays.to_weights);
  constexpr std::size_t line = 64;
  std::uint64_t sum = 0;
  for (std::size_t at = begin * width; at < end * width; at += line) sum += std::uint64_t(bytes[at]);
  asm volatile("" : : "r"(sum));  // has been used
}

const char* instruction_set() { return build().name; }

}  // namespace lockstep::optim
