#include "lockstep/device/cuda_runtime.h"

#include <dlfcn.h>

#include <optional>

#include "lockstep/device/cuda_library.h"
#include "lockstep/device/peer_memory.h"

namespace lockstep::device {
namespace {

template <class Function>
bool find(void* library, const char* name, Function& function) {
  void* found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) found = dlsym(RTLD_DEFAULT, name);
  function = reinterpret_cast<Function>(found);
  return found != nullptr;
}

std::optional<CudaRuntime> found_in_process() {
  // In the libraries that libtorch_cpu names too: a program that was loaded by Python need not show them to all.
  void* const library = dlopen(libtorch_file("libtorch_cpu.so").c_str(), RTLD_LAZY | RTLD_NOLOAD);
  CudaRuntime runtime{};
  const bool whole = find(library, "cudaGetDeviceCount", runtime.device_count) &&
                     find(library, "cudaDriverGetVersion", runtime.driver_version) &&
                     find(library, "cudaRuntimeGetVersion", runtime.runtime_version) &&
                     find(library, "cudaMemGetInfo", runtime.memory_info) &&
                     find(library, "cudaHostRegister", runtime.register_host) &&
                     find(library, "cudaHostUnregister", runtime.unregister_host) &&
                     find(library, "cudaGetLastError", runtime.last_error) &&
                     find(library, "cudaGetErrorString", runtime.error_string);
  if (library != nullptr) dlclose(library);
  if (!whole) return {};
  return runtime;
}

std::optional<PeerMemory> peer_memory_in_process() {
  void* const library = dlopen(libtorch_file("libtorch_cpu.so").c_str(), RTLD_LAZY | RTLD_NOLOAD);
  PeerMemory memory{};
  const bool whole =
      find(library, "cudaMalloc", memory.allocate) && find(library, "cudaIpcGetMemHandle", memory.handle_of) &&
      find(library, "cudaIpcOpenMemHandle", memory.open_handle) &&
      find(library, "cudaIpcCloseMemHandle", memory.close_handle) &&
      find(library, "cudaDeviceEnablePeerAccess", memory.enable_peer_access) &&
      find(library, "cudaGetLastError", memory.last_error) && find(library, "cudaGetErrorString", memory.error_string);
  if (library != nullptr) dlclose(library);
  if (!whole) return {};
  return memory;
}

}  // namespace

const CudaRuntime* cuda_runtime() {
  static const std::optional<CudaRuntime> runtime = found_in_process();
  return runtime ? &*runtime : nullptr;
}

const PeerMemory* cuda_peer_memory() {
  static const std::optional<PeerMemory> memory = peer_memory_in_process();
  return memory ? &*memory : nullptr;
}

const char* words_of(const CudaRuntime& runtime, int error) {
  runtime.last_error();
  return runtime.error_string(error);
}

}  // namespace lockstep::device
