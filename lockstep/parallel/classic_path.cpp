#include "lockstep/parallel/classic_path.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace lockstep::parallel {

ClassicPath::ClassicPath(const NamedTensors& trainable, const NamedTensors& buffers, std::shared_ptr<comm::Group> group)
    : module_buffers_(buffers),
      group_(std::move(group)),
      buckets_(std::make_shared<GradientBuckets>(trainable, group_)) {}

void ClassicPath::begin_forward() {
  buckets_->begin_forward();
  if (buckets_->enabled()) broadcast_buffers();
}

void ClassicPath::broadcast_buffers() {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : module_buffers_) group_->broadcast(tensor);
}

std::shared_ptr<void> ClassicPath::no_sync() {
  const bool before = buckets_->enabled();
  buckets_->set_enabled(false);
  return {nullptr, [buckets = std::weak_ptr(buckets_), before](void*) {
            if (const auto still = buckets.lock()) still->set_enabled(before);
          }};
}

}  // namespace lockstep::parallel
