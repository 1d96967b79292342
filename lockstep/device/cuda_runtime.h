#pragma once

// The functions of CUDA that are called by name. libtorch's CPU part brings libcudart where it was built for CUDA, so
// they are looked up in the running process: no source needs CUDA's headers, no program is linked with it.

#include <cstddef>

namespace lockstep::device {

/// Each returns an error number, 0 for done, but error_string. A failure also stays behind as the thread's last error,
/// which libtorch would report of its next kernel: clear it by last_error().
struct CudaRuntime {
  int (*device_count)(int* count);
  int (*driver_version)(int* version);
  int (*runtime_version)(int* version);
  int (*memory_info)(std::size_t* free, std::size_t* total);  ///< of the current device
  int (*register_host)(void* memory, std::size_t bytes, unsigned flags);
  int (*unregister_host)(void* memory);
  int (*last_error)();
  const char* (*error_string)(int error);
};

/// nullptr where the process has no libcudart: a libtorch without CUDA. Looked up once. Thread-safe.
const CudaRuntime* cuda_runtime();

/// The words of an error, which is cleared. Thread-safe.
const char* words_of(const CudaRuntime& runtime, int error);

}  // namespace lockstep::device
