#include "lockstep/data/device_loader.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <mutex>
#include <unordered_map>
#include <utility>

namespace lockstep::data {
namespace {

bool is_dense(const at::Tensor& tensor) { return tensor.defined() && tensor.layout() == at::kStrided; }

at::Tensor in_pinned_memory(const at::Tensor& tensor) {
  if (!is_dense(tensor) || !tensor.device().is_cpu() || tensor.numel() == 0) return tensor;
  const at::Tensor plain = tensor.detach();
  return (plain.is_non_overlapping_and_dense() ? plain : plain.contiguous()).pin_memory();
}

// In the loader's threads: a copy within the host's memory costs as much as one to the device, and more than one of
// them can be at it.
BatchSource made_for(at::Device device, BatchSource source) {
  if (device.is_cpu()) return source;
  return [source = std::move(source)](std::int64_t number) { return pin_memory(source(number)); };
}

at::Device with_number(at::Device device) {
  return device.has_index() ? device : c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

// One for each device, of all loaders: freed memory is kept for the stream it was allocated on, so a loader that took
// another stream would find none of what the one before has left.
c10::Stream copies_stream(at::Device device) {
  static std::mutex mutex;
  static auto* const streams = new std::unordered_map<at::Device, c10::Stream>();
  const std::lock_guard lock(mutex);
  const auto known = streams->find(device);
  if (known != streams->end()) return known->second;
  const c10::Stream taken = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  streams->emplace(device, taken);
  return taken;
}

at::Tensor queued(const at::Tensor& tensor, at::Device device) {
  return is_dense(tensor) ? tensor.to(device, /*non_blocking=*/true) : tensor;
}

}  // namespace

Batch pin_memory(const Batch& batch) { return {in_pinned_memory(batch.data), in_pinned_memory(batch.target)}; }

DeviceCopies::DeviceCopies(at::Device device) : device_(with_number(device)), stream_(copies_stream(device_)) {}

// The memory is the copies' stream's. So it needs no order with the stream that computes before it is used there, and a
// copy that nobody wants is followed by the next one in the same memory.
DeviceCopies::Copy DeviceCopies::start(const Batch& batch) const {
  const c10::InferenceMode no_inference(false);  // a batch that is copied ahead may be for a step of training
  const at::NoGradGuard no_grad;
  const c10::StreamGuard aside(stream_);
  Copy copy{{queued(batch.data, device_), queued(batch.target, device_)}, c10::Event(device_.type())};
  copy.done.record(stream_);
  return copy;
}

Batch DeviceCopies::hand_over(const Copy& copy) const {
  const c10::impl::VirtualGuardImpl guard(device_.type());
  const c10::Stream here = guard.getStream(device_);
  copy.done.block(here);
  for (const at::Tensor& tensor : {copy.batch.data, copy.batch.target})
    if (is_dense(tensor)) tensor.record_stream(here);
  return copy.batch;
}

DeviceLoader::DeviceLoader(BatchSource source, std::int64_t first, std::int64_t last, at::Device device,
                           const LoaderOptions& options)
    : loader_(made_for(device, std::move(source)), first, last, options), position_(first) {
  if (!device.is_cpu()) copies_.emplace(device);
}

// The event is behind the steps of all batches but the last that was given. With that one, the one that is given now
// and the one on its way there are three.
DeviceCopies::Copy DeviceLoader::start(const Batch& batch) const {
  if (given_ && !given_->query()) given_->synchronize();
  return copies_->start(batch);
}

std::optional<Batch> DeviceLoader::next() {
  // A batch that was taken and not given, since the device refused, is made again.
  if (!ahead_ && loader_.position() != position_) loader_.restore({position_});
  if (!ahead_) {
    std::optional<Batch> batch = loader_.next();
    if (!batch) return batch;
    if (!copies_) {
      ++position_;
      return batch;
    }
    ahead_.emplace(start(*batch));
  }
  const std::optional<DeviceCopies::Copy> taken = std::exchange(ahead_, std::nullopt);
  Batch batch = copies_->hand_over(*taken);
  // Not waited for: the device has nothing to do before the caller has this batch.
  if (const std::optional<Batch> following = loader_.next_if_ready()) ahead_.emplace(start(*following));
  const at::Device device = copies_->device();
  if (!given_) given_.emplace(device.type());
  given_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  ++position_;
  return batch;
}

void DeviceLoader::restore(const LoaderState& state) {
  loader_.restore(state);
  ahead_.reset();
  position_ = state.position;
}

}  // namespace lockstep::data
