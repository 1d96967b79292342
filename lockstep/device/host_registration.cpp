#include "lockstep/device/host_registration.h"

#include <c10/core/DeviceGuard.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "lockstep/device/cuda_library.h"
#include "lockstep/device/cuda_runtime.h"

namespace lockstep::device {
namespace {

// Of cudaHostRegister.
constexpr unsigned kForAllContexts = 1;
constexpr unsigned kReadOnly = 8;

}  // namespace

HostRegistration::HostRegistration(std::span<std::byte> memory, at::Device device) {
  if (!device.is_cuda() || memory.empty()) return;
  load_cuda_library();
  const CudaRuntime* const runtime = cuda_runtime();
  if (runtime == nullptr) {
    refusal_ = "there is no libcudart in this process";
    return;
  }
  const auto page = std::uintptr_t(sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(memory.data()) / page * page;
  const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(memory.data()) + memory.size() + page - 1) / page * page;
  // Else each process would take memory on the first GPU.
  const c10::DeviceGuard guard(device);
  void* const pages = reinterpret_cast<void*>(begin);
  int error = runtime->register_host(pages, end - begin, kForAllContexts);
  if (error != 0) {
    refusal_ = words_of(*runtime, error);
    error = runtime->register_host(pages, end - begin, kForAllContexts | kReadOnly);
    if (error != 0) {
      runtime->last_error();
      return;
    }
    refusal_.clear();
  }
  pages_ = pages;
}

HostRegistration::HostRegistration(HostRegistration&& other) noexcept
    : pages_(std::exchange(other.pages_, nullptr)), refusal_(std::move(other.refusal_)) {}

HostRegistration& HostRegistration::operator=(HostRegistration&& other) noexcept {
  std::swap(pages_, other.pages_);
  std::swap(refusal_, other.refusal_);
  return *this;
}

HostRegistration::~HostRegistration() {
  if (pages_ == nullptr) return;
  const CudaRuntime& runtime = *cuda_runtime();
  // At the end of a process the driver may be gone already; it has let go of the pages then.
  if (runtime.unregister_host(pages_) != 0) runtime.last_error();
}

}  // namespace lockstep::device
