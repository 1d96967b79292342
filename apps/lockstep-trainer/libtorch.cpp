#include "libtorch.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <cstdio>
#include <sstream>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::app {
namespace {

// "OpenMP" of the line "ATen parallel backend: OpenMP".
std::string parallel_backend() {
  const std::string name = "ATen parallel backend: ";
  std::istringstream lines(at::get_parallel_info());
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name)) return line.substr(name.size());
  return "unknown (libtorch does not say)";
}

std::string library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&at::get_parallel_info), &info) == 0 || info.dli_fname == nullptr)
    return "unknown (the loader does not say)";
  return info.dli_fname;
}

}  // namespace

int print_libtorch() {
  const int written = std::printf("version=%s\nlibrary=%s\nC++11 ABI=%s\ncpu capability=%s\nparallel backend=%s\n",
                                  TORCH_VERSION, library().c_str(), _GLIBCXX_USE_CXX11_ABI ? "yes" : "no",
                                  at::get_cpu_capability().c_str(), parallel_backend().c_str());
  return written < 0 || std::fflush(stdout) != 0 ? kExitFailure : kExitDone;
}

}  // namespace lockstep::app
