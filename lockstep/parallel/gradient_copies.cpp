#include "lockstep/parallel/gradient_copies.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <utility>

namespace lockstep::parallel {
namespace {

// An event costs as much as a copy of so much.
constexpr std::size_t kTogether = std::size_t(1) << 20;

}  // namespace

GradientCopies::GradientCopies(at::Device device)
    : device_(device), stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)) {}

GradientCopies::~GradientCopies() {
  try {
    wait();
  } catch (const std::exception&) {  // the device has failed, which whoever waited for it was told
  }
}

void GradientCopies::start(const at::Tensor& to, const at::Tensor& gradient) {
  gathered_.push_back({to, gradient});
  bytes_ += gradient.nbytes();
  if (bytes_ >= kTogether) queue();
}

void GradientCopies::queue() {
  if (gathered_.empty()) return;
  const at::NoGradGuard no_grad;
  while (!queued_.empty() && queued_.front().done.query()) queued_.pop_front();
  const c10::impl::VirtualGuardImpl guard(device_.type());
  c10::Event made(device_.type());
  made.record(guard.getStream(device_));
  const c10::StreamGuard on(stream_);
  made.block(stream_);
  for (const Copy& copy : gathered_) copy.to.copy_(copy.gradient, /*non_blocking=*/true);
  c10::Event done(device_.type());
  done.record(stream_);
  queued_.push_back({std::exchange(gathered_, {}), std::move(done)});
  bytes_ = 0;
}

void GradientCopies::wait() {
  queue();
  const c10::impl::VirtualGuardImpl guard(device_.type());
  guard.synchronizeStream(guard.getStream(device_));
  guard.synchronizeStream(stream_);
  queued_.clear();
}

}  // namespace lockstep::parallel
