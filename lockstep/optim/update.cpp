#include "lockstep/optim/update.h"

#include <cstdlib>
#include <string_view>

#include "lockstep/base/cache.h"
#include "lockstep/base/error.h"
#include "lockstep/optim/kernels.h"

namespace lockstep::optim {
namespace {

template <class R>
using Kernel = void (*)(const R&, const Arrays&, std::size_t, std::size_t, bool);

struct Build {
  const char* name;
  Kernel<SGDRule> sgd;
  Kernel<AdamRule> adam;
  bool (*supported)();
};

constexpr Build kBuilds[] = {
    {"avx512", update_avx512, update_avx512, [] { return __builtin_cpu_supports("avx512f") != 0; }},
    {"avx2", update_avx2, update_avx2, [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
    {"scalar", update_scalar, update_scalar, [] { return true; }},
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

bool streams(const Arrays& arrays, std::size_t total, Stores stores) {
  if (stores != Stores::automatic) return stores == Stores::streaming;
  if (arrays.to_weights == arrays.from_weights) return false;
  std::size_t written = 1;
  for (const float* state : arrays.to_state) written += state != nullptr;
  return written * total * sizeof(float) > last_level_cache();
}

}  // namespace

void update(const Rule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, std::size_t total,
            Stores stores) {
  const bool streaming = streams(arrays, total, stores);
  if (const auto* sgd = std::get_if<SGDRule>(&rule)) return build().sgd(*sgd, arrays, begin, end, streaming);
  build().adam(std::get<AdamRule>(rule), arrays, begin, end, streaming);
}

std::size_t last_level_cache() { return base::last_level_cache(); }

const char* instruction_set() { return build().name; }

}  // namespace lockstep::optim
