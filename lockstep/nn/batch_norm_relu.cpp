#include "lockstep/nn/batch_norm_relu.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>
#include <torch/nn/functional/batchnorm.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include "lockstep/nn/copied.h"
#include "lockstep/nn/normalize.h"
#include "lockstep/parallel/sync_batch_norm.h"

namespace lockstep::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Tells profilers of the time until it ends, as PyTorch's operators do.
class Recorded {
 public:
  explicit Recorded(const char* name) {
    if (record_.isActive()) record_.before(name);
  }

 private:
  at::RecordFunction record_;
};

constexpr const char* kForward = "lockstep::batch_norm_relu";
constexpr const char* kBackward = "lockstep::batch_norm_relu_backward";

// A forward pass of a layer.
struct NormCall {
  NormTensors layer;
  bool by_batch = true;  // not by the running statistics
  double momentum = 0;
  double eps = 0;
  bool over_ranks = false;
};

// As BatchNormImplBase::forward() does it, which counts the batch.
NormCall begin_call(torch::nn::BatchNorm2dImpl& layer) {
  NormCall call{{layer.weight, layer.bias, layer.running_mean, layer.running_var},
                layer.is_training() || !layer.options.track_running_stats(),
                layer.options.momentum().value_or(0),
                layer.options.eps(),
                !parallel::synchronized_layer(layer).empty()};
  if (layer.is_training() && layer.options.track_running_stats() && layer.num_batches_tracked.defined()) {
    layer.num_batches_tracked += 1;
    if (!layer.options.momentum()) call.momentum = 1.0 / layer.num_batches_tracked.item<double>();
  }
  return call;
}

// What follows the normalisation, besides the ReLU.
struct Behind {
  at::Tensor added;
  std::optional<Pooling> pooling;
};

at::Tensor max_pool(const at::Tensor& x, Pooling pooling) {
  return pooling == Pooling::halving ? at::max_pool2d(x, 2) : at::max_pool2d(x, 3, 2, 1);
}

at::Tensor behind(const at::Tensor& normalized, const Behind& behind) {
  const at::Tensor y = at::relu(behind.added.defined() ? normalized + behind.added : normalized);
  return behind.pooling ? max_pool(y, *behind.pooling) : y;
}

at::Tensor separate(const at::Tensor& x, const NormCall& call, const Behind& then) {
  const NormTensors& layer = call.layer;
  return behind(torch::nn::functional::detail::batch_norm(x, layer.running_mean, layer.running_var, layer.weight,
                                                          layer.bias, call.by_batch, call.momentum, call.eps),
                then);
}

bool is_dense_float(const at::Tensor& tensor, std::int64_t channels) {
  return !tensor.defined() ||
         (tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.scalar_type() == at::kFloat &&
          tensor.dim() == 1 && tensor.size(0) == channels && tensor.is_contiguous());
}

bool is_plain(const at::Tensor& x) {
  return x.device().is_cpu() && x.layout() == at::kStrided &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

bool can_be_fused(const at::Tensor& x, const NormCall& call, const Behind& then) {
  if (call.over_ranks || !is_plain(x) || x.numel() == 0) return false;
  const std::int64_t channels = x.size(1);
  const NormTensors& layer = call.layer;
  if (call.by_batch && x.numel() == channels) return false;  // one value per channel, which is an error
  if (!call.by_batch && !layer.running_mean.defined()) return false;
  if (layer.running_mean.defined() != layer.running_var.defined()) return false;
  for (const at::Tensor* tensor : {&layer.weight, &layer.bias, &layer.running_mean, &layer.running_var})
    if (!is_dense_float(*tensor, channels)) return false;
  if (then.added.defined() &&
      (!is_plain(then.added) || then.added.sizes() != x.sizes() || then.added.scalar_type() != x.scalar_type()))
    return false;
  // Planes of so few values cost more by themselves than what is in them.
  constexpr std::int64_t kFewValues = 64;
  return is_channels_last(x) || x.size(2) * x.size(3) >= kFewValues;
}

// PyTorch's own pooling is the better one where the channels lie apart, and says what is wrong with a picture.
bool can_be_pooled(const at::Tensor& x) { return is_channels_last(x) && x.size(2) > 1 && x.size(3) > 1; }

bool wants_gradient(const at::Tensor& x, const NormCall& call, const Behind& then) {
  const auto wants = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  return at::GradMode::is_enabled() &&
         (wants(x) || wants(call.layer.weight) || wants(call.layer.bias) || wants(then.added));
}

// What backward needs besides tensors that autograd knows.
struct Forward : torch::CustomClassHolder {
  Normalization by;
  Pooled pooled;
  double eps = 0;
  bool added = false;
  std::optional<Pooling> pooling;
};

// Its gradient as a function of x, weight, bias and dy: by the separate operators.
variable_list differentiable_gradients(const variable_list& saved, const Forward& forward, const at::Tensor& dy) {
  const at::Tensor& x = saved[0];
  const at::Tensor normalized = at::batch_norm(x, saved[1], saved[2], {}, {}, /*training=*/true, 0, forward.eps, false);
  // Of a sum, where the ReLU cut is known from its output.
  const at::Tensor g = forward.added ? dy * (saved[3] > 0).to(dy.scalar_type()) : dy;
  const at::Tensor y = forward.added ? normalized : behind(normalized, {{}, forward.pooling});
  variable_list of, found(6);
  for (int i = 0; i < 3; ++i)
    if (saved[i].defined() && saved[i].requires_grad()) of.push_back(saved[i]);
  if (!of.empty()) {
    const variable_list gradients = torch::autograd::grad({y}, of, {g}, /*retain_graph=*/true, /*create_graph=*/true);
    for (int i = 0, next = 0; i < 3; ++i)
      if (saved[i].defined() && saved[i].requires_grad()) found[i] = gradients[next++];
  }
  if (forward.added) found[3] = g;
  return found;
}

class BatchNormFunction : public torch::autograd::Function<BatchNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& added,
                            const NormCall& call, std::optional<Pooling> pooling) {
    const Recorded recorded(kForward);
    const auto held = c10::make_intrusive<Forward>();
    const Pictures pictures = dense_pictures(x);
    held->by = normalization_of(pictures, call.layer, call.momentum, call.eps);
    held->eps = call.eps;
    held->added = added.has_value();
    held->pooling = pooling;
    at::Tensor y;
    if (pooling) {
      Pooled pooled = normalized_relu_pool(pictures, held->by, *pooling);
      y = std::exchange(pooled.y, {});  // it holds its graph, which holds this
      held->pooled = std::move(pooled);
    } else {
      y = normalized_relu(pictures, held->by, added.value_or(at::Tensor()));
    }
    context->save_for_backward(
        {x, weight.value_or(at::Tensor()), bias.value_or(at::Tensor()), added ? y : at::Tensor()});
    context->saved_data["forward"] = c10::IValue::make_capsule(held);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto forward = c10::static_intrusive_pointer_cast<Forward>(context->saved_data["forward"].toCapsule());
    if (at::GradMode::is_enabled()) return differentiable_gradients(saved, *forward, gradients[0]);
    const Recorded recorded(kBackward);
    const Pictures x = dense_pictures(saved[0]);
    NormGradients found = forward->pooling
                              ? pool_gradients(x, forward->by, gradients[0], *forward->pooling, forward->pooled)
                          : forward->added ? added_relu_gradients(x, forward->by, gradients[0], saved[3])
                                           : relu_gradients(x, forward->by, gradients[0]);
    variable_list result{found.x, {}, {}, found.added, {}, {}};
    if (saved[1].defined()) result[1] = found.weight;
    if (saved[2].defined()) result[2] = found.bias;
    return result;
  }
};

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

at::Tensor run(const at::Tensor& x, const NormCall& call, const Behind& then) {
  if (then.pooling && !can_be_pooled(x)) return max_pool(run(x, call, {}), *then.pooling);
  const bool wanted = wants_gradient(x, call, then);
  if (!can_be_fused(x, call, then) || (wanted && !call.by_batch)) return separate(x, call, then);
  if (wanted)
    return BatchNormFunction::apply(x, if_defined(call.layer.weight), if_defined(call.layer.bias),
                                    if_defined(then.added), call, then.pooling);
  const at::NoGradGuard no_grad;
  const Recorded recorded(kForward);
  const Pictures pictures = dense_pictures(x);
  const Normalization by = call.by_batch ? normalization_of(pictures, call.layer, call.momentum, call.eps)
                                         : running_normalization(call.layer, call.eps);
  return then.pooling ? normalized_relu_pool(pictures, by, *then.pooling).y : normalized_relu(pictures, by, then.added);
}

void print(std::ostream& stream, const char* name, const torch::nn::BatchNorm2dOptions& options) {
  stream << std::boolalpha << "lockstep::nn::" << name << '(' << options.num_features() << ", eps=" << options.eps()
         << ", momentum=";
  if (options.momentum())
    stream << *options.momentum();
  else
    stream << "None";
  stream << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats();
}

}  // namespace

at::Tensor BatchNormReLU2dImpl::forward(const at::Tensor& x) {
  _check_input_dim(x);
  return run(x, begin_call(*this), {});
}

std::shared_ptr<torch::nn::Module> BatchNormReLU2dImpl::clone(const std::optional<at::Device>& device) const {
  return copied(*this, std::make_shared<BatchNormReLU2dImpl>(options), device);
}

void BatchNormReLU2dImpl::pretty_print(std::ostream& stream) const {
  print(stream, "BatchNormReLU2d", options);
  stream << ')';
}

at::Tensor BatchNormAddReLU2dImpl::forward(const at::Tensor& x, const at::Tensor& added) {
  _check_input_dim(x);
  return run(x, begin_call(*this), {added, {}});
}

std::shared_ptr<torch::nn::Module> BatchNormAddReLU2dImpl::clone(const std::optional<at::Device>& device) const {
  return copied(*this, std::make_shared<BatchNormAddReLU2dImpl>(options), device);
}

void BatchNormAddReLU2dImpl::pretty_print(std::ostream& stream) const {
  print(stream, "BatchNormAddReLU2d", options);
  stream << ')';
}

at::Tensor BatchNormReLUMaxPool2dImpl::forward(const at::Tensor& x) {
  _check_input_dim(x);
  return run(x, begin_call(*this), {{}, pooling_});
}

std::shared_ptr<torch::nn::Module> BatchNormReLUMaxPool2dImpl::clone(const std::optional<at::Device>& device) const {
  return copied(*this, std::make_shared<BatchNormReLUMaxPool2dImpl>(options, pooling_), device);
}

void BatchNormReLUMaxPool2dImpl::pretty_print(std::ostream& stream) const {
  print(stream, "BatchNormReLUMaxPool2d", options);
  stream << (pooling_ == Pooling::halving ? ", 2x2)" : ", 3x3, stride=2, padding=1)");
}

}  // namespace lockstep::nn
