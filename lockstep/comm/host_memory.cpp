#include "lockstep/comm/host_memory.h"

#include <ATen/Context.h>
#include <ATen/core/TensorBody.h>
#include <ATen/ops/empty.h>

#include <array>
#include <atomic>

namespace lockstep::comm {
namespace {

// Asked once for each kind of device: who has none says so by an exception.
bool has_pinned_memory(c10::DeviceType type) {
  enum : signed char { unknown, has_none, has_some };
  static std::array<std::atomic<signed char>, c10::COMPILE_TIME_MAX_DEVICE_TYPES> known{};
  std::atomic<signed char>& of_type = known[std::size_t(type)];
  if (of_type.load(std::memory_order_relaxed) == unknown) {
    signed char found = has_none;
    try {
      if (at::globalContext().getPinnedMemoryAllocator(type) != nullptr) found = has_some;
    } catch (const c10::Error&) {
      found = has_none;
    }
    of_type.store(found, std::memory_order_relaxed);
  }
  return of_type.load(std::memory_order_relaxed) == has_some;
}

}  // namespace

bool lies_in_host(const at::Tensor& tensor) { return tensor.device().is_cpu() && tensor.is_contiguous(); }

at::Tensor new_host_room(const at::Tensor& tensor) {
  const bool pinned = !tensor.device().is_cpu() && has_pinned_memory(tensor.device().type());
  return at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(pinned));
}

at::Tensor host_room(const at::Tensor& tensor) { return lies_in_host(tensor) ? tensor : new_host_room(tensor); }

at::Tensor host_values(const at::Tensor& tensor) {
  if (lies_in_host(tensor)) return tensor;
  at::Tensor values = new_host_room(tensor);
  values.copy_(tensor.detach());
  return values;
}

}  // namespace lockstep::comm
