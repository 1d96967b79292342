#include "lockstep/comm/nccl/nccl_library.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep::comm::nccl {
namespace {

constexpr const char* kFile = "libnccl.so.2";

template <class Function>
void take(void* handle, const std::string& path, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(handle, name));
  if (function == nullptr)
    throw UsageError("nccl: " + path + " has no function " + name + "; NCCL " + version_text(kLeastVersion) +
                     " or later is needed");
}

// Where libtorch's CPU part is.
std::string libtorch_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&at::globalContext), &info) == 0 || info.dli_fname == nullptr) return "";
  return std::filesystem::path(info.dli_fname).parent_path().string();
}

}  // namespace

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::vector<std::string> candidates(const char* given, const std::string& libtorch_folder) {
  if (given != nullptr && *given != '\0') return {given};
  if (libtorch_folder.empty()) return {kFile};
  // site-packages/torch/lib beside site-packages/nvidia/nccl/lib
  const std::filesystem::path site = std::filesystem::path(libtorch_folder).parent_path().parent_path();
  return {(site / "nvidia/nccl/lib" / kFile).string(), kFile};
}

Library load(const std::vector<std::string>& candidates) {
  std::string why;
  for (const std::string& path : candidates) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      why += (why.empty() ? "" : "; ") + std::string(dlerror());
      continue;
    }
    Library library{.table = {}, .version = 0, .path = path};
    Table& table = library.table;
    take(handle, path, "ncclGetVersion", table.get_version);
    take(handle, path, "ncclGetErrorString", table.get_error_string);
    if (const Result result = table.get_version(&library.version); result != Result::success)
      throw UsageError("nccl: " + path + " does not tell its version: " + table.get_error_string(result));
    if (library.version < kLeastVersion)
      throw UsageError("nccl: " + path + " is version " + version_text(library.version) + "; " +
                       version_text(kLeastVersion) + " or later is needed");
    take(handle, path, "ncclGetUniqueId", table.get_unique_id);
    take(handle, path, "ncclCommInitRankConfig", table.comm_init_rank_config);
    take(handle, path, "ncclCommFinalize", table.comm_finalize);
    take(handle, path, "ncclCommDestroy", table.comm_destroy);
    take(handle, path, "ncclCommAbort", table.comm_abort);
    take(handle, path, "ncclCommGetAsyncError", table.comm_get_async_error);
    take(handle, path, "ncclGetLastError", table.get_last_error);
    take(handle, path, "ncclAllReduce", table.all_reduce);
    take(handle, path, "ncclBroadcast", table.broadcast);
    take(handle, path, "ncclAllGather", table.all_gather);
    take(handle, path, "ncclReduceScatter", table.reduce_scatter);
    take(handle, path, "ncclSend", table.send);
    take(handle, path, "ncclRecv", table.recv);
    take(handle, path, "ncclGroupStart", table.group_start);
    take(handle, path, "ncclGroupEnd", table.group_end);
    return library;
  }
  throw UsageError("nccl: NCCL " + version_text(kLeastVersion) + " or later is needed, and none is to be had: " + why +
                   "; LOCKSTEP_NCCL may name its file");
}

Library load() { return load(candidates(std::getenv("LOCKSTEP_NCCL"), libtorch_folder())); }

}  // namespace lockstep::comm::nccl
