#include "lockstep/parallel/classic_path.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <utility>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/parallel/option_checks.h"
#include "lockstep/parallel/replica_check.h"

namespace lockstep::parallel {

namespace {

NamedTensors on_one_device(const NamedTensors& trainable, const DataParallelOptions& options) {
  check_device(options.device_ids, trainable);
  return trainable;
}

}  // namespace

ClassicPath::ClassicPath(const ModuleView& module, std::shared_ptr<comm::Group> group,
                         const DataParallelOptions& options, StepClock& clock)
    : module_(module),
      clock_(clock),
      group_(std::move(group)),
      verify_every_(options.verify_replicas_every),
      broadcasts_buffers_(options.broadcast_buffers),
      autotunes_(options.buckets.autotune),
      buckets_(std::make_shared<GradientBuckets>(on_one_device(module.trainable(), options), group_, options, clock)) {}

void ClassicPath::begin_forward() {
  const bool with_gradients = at::GradMode::is_enabled();
  if (with_gradients) buckets_->begin_forward();
  if (!std::exchange(syncs_next_, with_gradients && buckets_->enabled())) return;
  if (inputs_) inputs_->announce(UnevenInputs::Pass::forward);
  verify();
  broadcast_buffers();
}

void ClassicPath::begin_evaluation() {
  syncs_next_ = false;
  verify();
  broadcast_buffers();
}

void ClassicPath::broadcast_buffers() {
  if (!broadcasts_buffers_) return;
  const at::NoGradGuard no_grad;
  const int root = inputs_ ? inputs_->source() : 0;
  for (const auto& [name, tensor] : module_.buffers()) group_->broadcast(tensor, root);
}

// The weights of ranks without inputs stand still until join() ends.
void ClassicPath::verify() {
  const std::uint64_t step = buckets_->averaged();
  if (verify_every_ == 0 || step == verified_ || step % verify_every_ != 0 || (inputs_ && !inputs_->complete())) return;
  verified_ = step;
  check_replicas(*group_, module_.parameters(), step);
}

std::shared_ptr<void> ClassicPath::no_sync() {
  const bool before = buckets_->enabled();
  buckets_->set_enabled(false);
  return {nullptr, [buckets = std::weak_ptr(buckets_), before](void*) {
            if (const auto still = buckets.lock()) still->set_enabled(before);
          }};
}

void ClassicPath::register_comm_hook(CommHook hook) {
  if (!hook) throw UsageError("data parallel: register_comm_hook() without a hook");
  if (has_hook()) throw UsageError("data parallel: a communication hook is registered already; a model has one");
  if (autotunes_)
    throw UsageError(
        "data parallel: a communication hook with buckets.autotune, which changes the buckets that its state is of; "
        "leave autotune out");
  buckets_->set_hook(std::move(hook));
  has_hook_ = true;
}

void ClassicPath::join(const std::function<void()>& loop, const JoinOptions& options, bool collective_layers) {
  if (inputs_) throw UsageError("data parallel: join() within join()");
  if (has_hook() && !options.divide_by_initial_world_size)
    throw UsageError(
        "data parallel: join() with a communication hook, whose mean is over all ranks; leave "
        "divide_by_initial_world_size true");
  inputs_.emplace(group_, options, &clock_, module_.device());
  buckets_->set_inputs(&*inputs_, collective_layers);
  const std::shared_ptr<void> done(nullptr, [this](void*) {
    buckets_->set_inputs(nullptr, false);
    inputs_.reset();
  });
  inputs_->run(loop);
  follow_the_others();
}

void ClassicPath::follow_the_others() {
  using Pass = UnevenInputs::Pass;
  for (Pass pass; (pass = inputs_->follow()) != Pass::none;) {
    if (pass == Pass::forward)
      broadcast_buffers();
    else
      buckets_->backward_without_inputs();
  }
  module_.broadcast(*group_, inputs_->source(), broadcasts_buffers_);
  if (amp::GradScaler* const scaler = inputs_->options().scaler) {
    const amp::ScalerState mine = scaler->state_dict();
    const at::Tensor state = at::tensor(at::ArrayRef<double>({mine.scale, double(mine.growth_tracker)}), at::kDouble);
    group_->broadcast(state, inputs_->source());
    scaler->load_state_dict({.scale = state[0].item<double>(), .growth_tracker = state[1].item<std::int64_t>()});
  }
  inputs_->end();
  syncs_next_ = true;  // on all ranks alike, whatever they had inputs for
}

}  // namespace lockstep::parallel
