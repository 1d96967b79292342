#include "lockstep/parallel/gradient_copies.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace lockstep::parallel {
namespace {

// An event costs as much as a copy of so much.
constexpr std::size_t kTogether = std::size_t(1) << 20;

}  // namespace

GradientCopies::GradientCopies(at::Device device)
    : device_(device), stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)) {}

GradientCopies::~GradientCopies() { wait(); }

void GradientCopies::start(const at::Tensor& to, const at::Tensor& gradient) {
  gathered_.push_back({to, gradient});
  bytes_ += gradient.nbytes();
  if (bytes_ >= kTogether) queue();
}

void GradientCopies::queue() {
  if (gathered_.empty()) return;
  const at::NoGradGuard no_grad;
  const c10::impl::VirtualGuardImpl guard(device_.type());
  c10::Event made(device_.type());
  made.record(guard.getStream(device_));
  const c10::StreamGuard on(stream_);
  made.block(stream_);
  for (Copy& copy : gathered_) {
    copy.to.copy_(copy.gradient, /*non_blocking=*/true);
    copied_.push_back(std::move(copy.gradient));
  }
  gathered_.clear();
  bytes_ = 0;
}

void GradientCopies::wait() {
  queue();
  const c10::impl::VirtualGuardImpl guard(device_.type());
  guard.synchronizeStream(guard.getStream(device_));
  guard.synchronizeStream(stream_);
  copied_.clear();
}

}  // namespace lockstep::parallel
