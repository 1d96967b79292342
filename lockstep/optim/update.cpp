#include "lockstep/optim/update.h"

#include <cmath>
#include <cstdlib>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/tree.h"
#include "lockstep/optim/kernels.h"

namespace lockstep::optim {
namespace {

struct Build {
  const char* name;
  Kernel* update;
  Measure* measure;
  Begin* begin;
  Kernel* finish;
  bool (*supported)();
};

constexpr Build kBuilds[] = {
    {"avx512", update_avx512, measure_avx512, begin_avx512, finish_avx512,
     [] { return __builtin_cpu_supports("avx512f") != 0; }},
    {"avx2", update_avx2, measure_avx2, begin_avx2, finish_avx2,
     [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
    {"scalar", update_scalar, measure_scalar, begin_scalar, finish_scalar, [] { return true; }},
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

const void* numbers_of(const Rule& rule) {
  return std::visit([](const auto& alternative) -> const void* { return &alternative; }, rule);
}

}  // namespace

const char* to_string(Stores stores) { return stores == Stores::plain ? "plain" : "streaming"; }

void update(const Rule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, Stores stores) {
  build().update(rule.index(), numbers_of(rule), arrays, begin, end, stores == Stores::streaming);
}

SquareSums square_sums(const Rule& rule, const Arrays& arrays, std::size_t begin, std::size_t end) {
  return build().measure(rule.index(), numbers_of(rule), arrays, begin, end);
}

bool has_halves(const Rule& rule, const Arrays& arrays) {
  return arrays.from_weights != arrays.to_weights &&
         std::visit([]<class R>(const R&) { return MovesByMeasured<R>; }, rule);
}

SquareSums begin_update(const Rule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, Stores stores) {
  return build().begin(rule.index(), numbers_of(rule), arrays, begin, end, stores == Stores::streaming);
}

void finish_update(const Rule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, Stores stores) {
  build().finish(rule.index(), numbers_of(rule), arrays, begin, end, stores == Stores::streaming);
}

Rule with_norms(const Rule& rule, const SquareSums* sums, std::size_t blocks) {
  const auto norm = [&](double SquareSums::*of) {
    return std::sqrt(base::tree_sum(0, int(blocks), [&](int block) { return sums[block].*of; }));
  };
  Rule made = rule;
  std::visit(
      [&]<class R>(R& alternative) {
        if constexpr (NeedsNorms<R>) alternative.set_norms(norm(&SquareSums::weights), norm(&SquareSums::measured));
      },
      made);
  return made;
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
