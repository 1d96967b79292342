#include "lockstep/parallel/gradient_buckets.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

void announce(UnevenInputs* inputs) {
  if (inputs != nullptr) inputs->announce(UnevenInputs::Pass::backward);
}

}  // namespace

GradientBuckets::GradientBuckets(const NamedTensors& parameters, std::shared_ptr<comm::Group> group,
                                 const DataParallelOptions& options, StepClock& clock)
    : parameters_(parameters),
      group_(std::move(group)),
      clock_(clock),
      skip_unused_(options.skip_all_reduce_unused_params && options.find_unused_parameters && !options.static_graph),
      as_views_(options.gradient_as_bucket_view),
      use_(parameters, options),
      buckets_(parameters, group_, options, clock),
      hooks_(tensors_of(parameters), [this](std::size_t i, bool added) { on_gradient(i, added); }) {}

void GradientBuckets::begin_forward() {
  refuse_converted();
  in_backward_ = false;
  buckets_->forget();
  averages_ = enabled_ || (begun_ && averages_);
  begun_ = true;
}

void GradientBuckets::begin_backward() {
  in_backward_ = true;
  buckets_.begin_pass(averaged_);
  if (!at_the_end_) announce(inputs_);
  buckets_->begin();
  use_.begin();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (use_.will_be_unused(i)) {
      use_.fill(i);
      buckets_->set_ready(i);
    }
  torch::autograd::Engine::get_default_engine().queue_callback([this] { finish_backward(); });
}

void GradientBuckets::on_gradient(std::size_t parameter, bool added) {
  const bool has_one = parameters_[parameter].second.grad().defined();  // a function's backward may give none
  if (has_one) {
    use_.note(parameter);
    clock_.gradient(parameter);
  }
  if (!averages_) return;
  if (!in_backward_) begin_backward();
  if (!has_one || !use_.count(parameter)) return;
  if (buckets_->is_ready(parameter)) {  // by a backward within this one
    if (!added || !buckets_->is_sent(parameter)) return;
    refuse({parameters_[parameter].first},
           "got a further gradient within one backward, after the ranks had averaged it; set static_graph");
  }
  buckets_->set_ready(parameter);
  if (!at_the_end_) send();
}

void GradientBuckets::send() { buckets_->send(inputs_ != nullptr ? inputs_->correction() : 1); }

void GradientBuckets::finish_backward() {
  in_backward_ = false;
  begun_ = false;
  refuse_converted();
  if (const auto difference = use_.check_graph()) refuse({parameters_[difference->parameter].first}, difference->what);
  if (use_.may_be_unused()) {
    add_unused();
  } else {
    std::vector<std::string> without;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (!buckets_->is_ready(i)) without.push_back(parameters_[i].first);
    if (!without.empty())
      refuse(without, "got no gradient on rank " + std::to_string(group_->rank()) +
                          ", so the ranks cannot average; every parameter must take part in the loss (freeze those "
                          "that do not before the model is wrapped, or set find_unused_parameters)");
    if (at_the_end_) {
      const torch::NoGradGuard no_grad;
      announce(inputs_);
      send();
    }
    buckets_->finish();
  }
  buckets_.end_pass(averaged_++);
  clock_.end_step(averaged_, /*updated=*/false);
}

// All ranks are told which parameters any of them used, for nobody may keep zeros for a gradient that nobody has. Of a
// static graph once.
void GradientBuckets::add_unused() {
  const torch::NoGradGuard no_grad;
  if (skip_unused_) buckets_->skip_unless(use_.used());
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!buckets_->is_ready(i)) {
      use_.fill(i);
      buckets_->set_ready(i);
    }
  if (at_the_end_) announce(inputs_);
  send();
  buckets_->finish();
  if (use_.agrees(averaged_)) use_.agree(*group_);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (buckets_->is_skipped(i) && use_.used_by_any(i))
      refuse({parameters_[i].first},
             "got a gradient on another rank and none on this one, which with skip_all_reduce_unused_params has not "
             "sent its bucket; leave that option out");
  use_.end();
}

void GradientBuckets::backward_without_inputs() {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> kept;
  for (const auto& [name, parameter] : parameters_) {
    const at::Tensor& own = parameter.grad();
    kept.push_back(as_views_ && own.defined() ? own.clone() : own);  // the others' gradients take its place
    parameter.mutable_grad() = at::zeros_like(parameter);
  }
  buckets_.begin_pass(averaged_);
  buckets_->begin();
  for (std::size_t i = 0; i < parameters_.size(); ++i) buckets_->set_ready(i);
  send();
  buckets_->finish();
  if (use_.agrees(averaged_)) use_.agree(*group_);
  const bool takes_means = !inputs_->options().joinables.empty();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!takes_means || (use_.may_be_unused() && !use_.used_by_any(i))) parameters_[i].second.mutable_grad() = kept[i];
  buckets_.end_pass(averaged_++);  // as the ranks that have inputs count
}

void GradientBuckets::refuse_converted() const {
  const auto lost = hooks_.first_lost();
  if (!lost) return;
  const at::Tensor& now = parameters_[*lost].second;
  const std::string cause = "data parallel: parameter '" + parameters_[*lost].first +
                            "' was converted after the model was wrapped, now " +
                            c10::str(now.scalar_type(), " ", now.sizes(), " on ", now.device()) +
                            ", so the ranks would not average its gradients; convert it before "
                            "DistributedDataParallel(...), or wrap the model anew";
  group_->abort(cause);
  throw UsageError(cause);
}

void GradientBuckets::refuse(const std::vector<std::string>& parameters, const std::string& why) const {
  const std::string cause = "backward: " + text_of_parameters(parameters) + " " + why;
  group_->abort(cause);
  throw Error(cause);
}

}  // namespace lockstep::parallel
