#pragma once

// Queues of work on a device, of whatever kind.

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

namespace lockstep::comm {

/// The one to which this thread adds what it calls on the device.
inline c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// Another one, out of a few that all of the process share.
inline c10::Stream side_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

/// What is added to `later` from now on begins when all that is in `earlier` is done. Does not wait.
inline void follow(const c10::Stream& later, const c10::Stream& earlier) {
  if (later == earlier) return;
  c10::Event reached(earlier.device_type());
  reached.record(earlier);
  reached.block(later);
}

/// The caller's queue for a tensor's device, for a thread that works for it: what that does within a scope of `Here` is
/// queued as if the caller did it. Nothing for a tensor of the host.
class CallersStream {
 public:
  explicit CallersStream(const at::Tensor& tensor) {
    if (tensor.defined() && !tensor.device().is_cpu()) stream_ = current_stream(tensor.device());
  }

  class Here {
   public:
    explicit Here(const CallersStream& callers) : guard_(callers.stream_) {}

   private:
    c10::OptionalStreamGuard guard_;
  };

 private:
  std::optional<c10::Stream> stream_;
};

}  // namespace lockstep::comm
