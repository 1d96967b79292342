#pragma once

// "sim": a stand-in for a GPU, over the host's memory, so that code for devices is tested where there is none. It is
// libtorch's PrivateUse1 backend: c10::Stream, c10::Event, guards, pinned memory, generators, autocast and autograd
// treat it as they treat CUDA. Never in one process with libtorch_cuda.
//
// All operations run at once, in the order in which the host asks, by the CPU's kernels over the same memory: results
// are the CPU's, bit for bit where both take the same operators. What the order of a real device would have been is
// recorded (Recording) and looked at by check() of happens_before.h.
//
// As with CUDA: autograd runs the nodes of each device on a thread of that device, not on the thread that calls
// backward(), with the stream that the forward operation had. So hooks are called on that thread, one at a time, while
// backward() waits.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/support/device/happens_before.h"

namespace lockstep::testing::sim {

/// Registers the backend with this many devices, 1 to 8, once per process: before its first backward(), which starts
/// the threads of devices. Again with the same number: nothing. Throws std::logic_error for another number.
void install(int devices = 2);

/// sim:index.
at::Device device(int index = 0);

/// The tensor's own memory as a CPU tensor, for code that runs "on the device", as a collective does. Not logged. It
/// holds the storage.
at::Tensor on_host(const at::Tensor& tensor);

/// The memory of a device, which at::accelerator::getMemoryInfo() tells; 0: 16 GiB, as at the start. An allocation
/// beyond throws c10::OutOfMemoryError.
void limit_memory(int index, std::size_t bytes);

/// While it lives, the devices are busy with all that is asked of them meanwhile: c10::Event::query() and
/// c10::Stream::query() say false. Who waits does not stand still. One at a time.
class Busy {
 public:
  Busy();
  ~Busy();
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
};

/// From now on this memory of the host counts as page-locked, as CUDA's cudaHostRegister makes it.
void pin(const void* memory, std::size_t bytes);

/// While it lives, all threads' operations on the devices are recorded; one at a time in a process. What is asked of
/// the devices before counts as over.
class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// What was recorded so far.
  std::vector<Entry> history() const;
  Report report() const { return check(history()); }
  void clear() const;
};

/// For the recording: the host itself reads or writes this memory, pinned or a device's.
void host_reads(const void* bytes, std::size_t count);
void host_writes(const void* bytes, std::size_t count);

/// For the recording: an operation that is none of libtorch's, on the current stream of the tensors' device.
void operation(const std::string& name, const std::vector<at::Tensor>& reads, const std::vector<at::Tensor>& writes);

}  // namespace lockstep::testing::sim
