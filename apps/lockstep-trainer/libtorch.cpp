#include "libtorch.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda_library.h"
#include "lockstep/device/cuda_runtime.h"
#include "lockstep/device/facts/decision.h"
#include "lockstep/device/facts/driver.h"

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

// For which CUDA the part is that --device cuda loads. Nothing is loaded for that.
std::string cuda() {
  if (const std::string why = device::why_no_cuda_library(); !why.empty()) return "none (" + why + ")";
  int version = 0;
  const device::CudaRuntime* const runtime = device::cuda_runtime();
  if (runtime == nullptr || runtime->runtime_version(&version) != 0) return "unknown (there is no libcudart)";
  return device::cuda_version(version);
}

std::string nccl() {
  const std::string version =
      device::nccl_version(std::filesystem::path(device::libtorch_file("libtorch_cpu.so")).parent_path());
  return version.empty() ? "none" : version;
}

}  // namespace

int print_libtorch() {
  const int written = std::printf(
      "version=%s\nlibrary=%s\nC++11 ABI=%s\ncpu capability=%s\nparallel backend=%s\n"
      "CUDA=%s\nNCCL=%s\n",
      TORCH_VERSION, library().c_str(), _GLIBCXX_USE_CXX11_ABI ? "yes" : "no", at::get_cpu_capability().c_str(),
      parallel_backend().c_str(), cuda().c_str(), nccl().c_str());
  return written < 0 || std::fflush(stdout) != 0 ? kExitFailure : kExitDone;
}

}  // namespace lockstep::app
