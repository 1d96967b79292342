#include "lockstep/parallel/classic_path.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace lockstep::parallel {

ClassicPath::ClassicPath(const ModuleView& module, std::shared_ptr<comm::Group> group, bool find_unused_parameters)
    : module_buffers_(module.buffers()),
      group_(std::move(group)),
      buckets_(std::make_shared<GradientBuckets>(module.trainable(), group_, find_unused_parameters)) {}

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
