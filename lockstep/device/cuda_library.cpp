#include "lockstep/device/cuda_library.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include <filesystem>
#include <mutex>

#include "lockstep/base/error.h"

namespace lockstep::device {
namespace {

constexpr const char* kLibrary = "libtorch_cuda.so";

}  // namespace

std::string libtorch_file(const std::string& name) {
  Dl_info info{};
  // An object of libtorch_cpu tells where it is; a function's address may be one in the program.
  if (dladdr(&at::globalContext(), &info) == 0 || info.dli_fname == nullptr) return name;
  return (std::filesystem::path(info.dli_fname).parent_path() / name).string();
}

std::string why_no_cuda_library() {
  const std::string file = libtorch_file(kLibrary);
  std::error_code error;
  if (std::filesystem::exists(file, error)) return "";
  return "this libtorch is for CPUs only: there is no " + file +
         ": a libtorch that was built for CUDA (LOCKSTEP_TORCH)";
}

void load_cuda_library() {
  static std::mutex mutex;
  static bool loaded = false;
  const std::lock_guard lock(mutex);
  if (loaded) return;
  if (const std::string why = why_no_cuda_library(); !why.empty()) throw UsageError(why);
  // All may see it: the libraries that libtorch_cuda loads later look for its functions by name.
  if (dlopen(libtorch_file(kLibrary).c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
    throw UsageError(std::string(kLibrary) + " does not load: " + dlerror() +
                     ": scripts/bootstrap --cuda installs what it needs");
  // The stand-in that libtorch_cpu has for its CUDA part says no here.
  if (!at::Context::hasCUDART())
    throw UsageError(
        "libtorch has been asked about CUDA before its CUDA part was loaded, and keeps its answer: choose the device "
        "first, "
        "before torch::manual_seed() and the like");
  loaded = true;
}

}  // namespace lockstep::device
