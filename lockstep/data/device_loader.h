#pragma once

// Batches that are on a device when they are handed out. They are made in page-locked memory, and the copy of the next
// one goes on beside the step that computes with this one.

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>

#include "lockstep/data/batch.h"
#include "lockstep/data/loader.h"

namespace lockstep::data {

/// The batch with its tensors in page-locked memory, written out there unless they are; strides stay where the elements
/// lie without gaps. Tensors of a device, sparse and undefined ones are left as they are. For a process with a device
/// that has such memory: c10::Error where there is none, or the driver has no more. Thread-safe.
Batch pin_memory(const Batch& batch);

/// Copies batches to a device on a stream beside those that compute, one for each device, which all of the process
/// share: what one has freed is memory for the next. Sparse tensors stay where they are. One thread uses it.
class DeviceCopies {
 public:
  /// A device without a number is the current one of its kind.
  explicit DeviceCopies(at::Device device);

  at::Device device() const { return device_; }

  /// On its way: the tensors on the device, and what is recorded behind them.
  struct Copy {
    Batch batch;
    c10::Event done;
  };

  /// Queues the copy. Page-locked memory is read later: what libtorch has given (pin_memory()) it gives out again only
  /// when the copy is done, so the batch need not be kept; of what was page-locked otherwise (cudaHostRegister) nobody
  /// knows, and its owner leaves it as it is until `done`. Other memory is read before this returns, which waits for
  /// that. A Copy may go unused at any time.
  Copy start(const Batch& batch) const;

  /// The batch, for the device's current stream, which waits for the copy; the host does not. Its memory is given out
  /// again only when that stream is behind what it has to do now and until the last tensor is gone. Who uses it in
  /// another stream orders that one behind this one, and records it (Tensor::record_stream).
  Batch hand_over(const Copy& copy) const;

 private:
  at::Device device_;
  c10::Stream stream_;
};

/// A Loader whose batches are on `device` when next() gives them. For the CPU it is the Loader. For other devices the
/// loader's threads bring what they make into page-locked memory, and next() queues the copy of the batch that comes
/// then, if it is made by that time: so two batches are on the device, or three while the device is behind. Where it is
/// further behind, next() waits for it before it copies another; what the caller keeps is on the device besides.
/// A source whose memory is page-locked, but not by libtorch, leaves it as it is: DeviceCopies::start().
/// One consumer thread, whose current stream is the one that uses the batches.
class DeviceLoader {
 public:
  /// As of Loader.
  DeviceLoader(BatchSource source, std::int64_t first, std::int64_t last, at::Device device,
               const LoaderOptions& options = {});

  /// As Loader::next(). What is wrong with a batch is thrown at that batch, however far ahead it was made. What the
  /// device refuses, its memory being full for instance, is thrown as it comes up; no batch is passed over by that.
  /// Tensors of a device are such as autograd takes, under InferenceMode too.
  std::optional<Batch> next();

  /// The number of the batch that next() gives: one that was copied ahead does not count.
  std::int64_t position() const { return position_; }

  LoaderState state() const { return {position_}; }

  /// As Loader::restore(): what was copied ahead is dropped, too.
  void restore(const LoaderState& state);

  /// Any thread may ask. The wait for batches, not for copies.
  LoaderStatistics statistics() const { return loader_.statistics(); }

 private:
  DeviceCopies::Copy start(const Batch& batch) const;

  std::optional<DeviceCopies> copies_;  // none: the CPU
  Loader loader_;
  std::int64_t position_;
  std::optional<DeviceCopies::Copy> ahead_;  // batch number position_
  std::optional<c10::Event> given_;          // what the consumer's stream had to do when the last batch was given
};

}  // namespace lockstep::data
