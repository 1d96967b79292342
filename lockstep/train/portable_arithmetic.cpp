#include "lockstep/train/portable_arithmetic.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::train {

bool set_arithmetic(const Options& options) {
  if (options.arithmetic != "portable") return false;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    throw UsageError(
        "--arithmetic portable needs a CPU with AVX2 and FMA, and this one has them not: --arithmetic native");
  bool changed = false;
  for (const auto& [name, value] : {std::pair("ATEN_CPU_CAPABILITY", "avx2"), std::pair("ONEDNN_MAX_CPU_ISA", "AVX2"),
                                    std::pair("MKL_CBWR", "COMPATIBLE")}) {
    const char* const before = std::getenv(name);
    if (before != nullptr && std::string_view(before) == value) continue;
    if (setenv(name, value, 1) != 0)
      throw Error("--arithmetic portable: cannot set " + std::string(name) + ": " + std::strerror(errno));
    changed = true;
  }
  return changed;
}

void start_with_arithmetic(const Options& options, char** argv) {
  if (!set_arithmetic(options)) return;
  execv("/proc/self/exe", argv);
  throw Error("--arithmetic portable: cannot start this program again: " + std::string(std::strerror(errno)));
}

}  // namespace lockstep::train
