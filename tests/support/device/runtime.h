#pragma once

// What all parts of the stand-in share: the current device and streams of a thread, memory, the log. Inside the
// library.

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <optional>
#include <vector>

#include "tests/support/device/happens_before.h"

namespace lockstep::testing::sim {

inline constexpr c10::DeviceType kSim = c10::DeviceType::PrivateUse1;

int device_count();
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
c10::Stream current_stream(c10::DeviceIndex index);
c10::Stream exchange_stream(c10::Stream stream);
StreamName name_of(const c10::Stream& stream);

/// On by Recording only: ask before an entry is put together.
bool recording();
void log(Entry entry);

inline Range range_of(const void* bytes, std::size_t count) {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes);
  return {begin, begin + count};
}

/// Bytes of a tensor, a range for each run of them; one around all where there are many.
void add_ranges(const at::Tensor& tensor, std::vector<Range>& ranges);

/// The devices' memory, allocated on the current stream, and pinned memory of the host.
c10::DeviceAllocator* device_allocator();
at::HostAllocator* pinned_allocator();
bool is_pinned(const void* data);
std::optional<c10::Device> device_of_pointer(const void* data);

/// What operators on the device draw from: the device's generator, and the CPU's behind it.
const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator new_generator(c10::DeviceIndex index);
at::Generator cpu_engine(const at::Generator& generator);

/// A storage's memory becomes `bytes` long; what was there stays as far as it fits.
void resize_storage(c10::StorageImpl& storage, std::size_t bytes);

/// Every operator that has nothing of its own here: runs the CPU's kernel over the same memory.
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

void register_guard();
void register_hooks();
void register_operators();
void register_batch_norm();
void register_autocast();

}  // namespace lockstep::testing::sim
