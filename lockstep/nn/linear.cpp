#include "lockstep/nn/linear.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>
#include <numeric>
#include <ostream>
#include <utility>
#include <vector>

#include "lockstep/nn/copied.h"
#include "lockstep/parallel/gradient_hooks.h"

namespace lockstep::nn {
namespace {

using parallel::GradientHooks;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// [..., n] as [rows, n].
at::Tensor rows_of(const at::Tensor& tensor) { return tensor.dim() == 2 ? tensor : tensor.flatten(0, -2); }

at::Tensor with_sizes(const at::Tensor& rows, at::IntArrayRef sizes) {
  return sizes.size() == 2 ? rows : rows.reshape(sizes);
}

// How the bias is added where the input has more than two dimensions: behind the product as libtorch's layer does it,
// or within it as at::linear does.
enum class BiasOfMore { behind, within };

// y = x w^T + b. The products and their operands are those of the backward of addmm, or of matmul and +=.
class LinearBackward final : public torch::autograd::Node {
 public:
  LinearBackward(const at::Tensor& x, const at::Tensor& weight, BiasOfMore of_more, torch::autograd::edge_list inputs)
      : Node(std::move(inputs)), x_sizes_(x.sizes().vec()), of_more_(of_more), x_(x, /*is_output=*/false) {
    if (x.requires_grad()) weight_ = SavedVariable(weight, /*is_output=*/false);
  }

  std::string name() const override { return "LockstepLinearBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard lock(mutex_);
    const at::Tensor& dy = gradients[0];
    variable_list found(num_outputs());
    if (!dy.defined()) return found;
    const at::Tensor rows = rows_of(dy);  // copied where they do not lie one behind the other, and once
    if (task_should_compute_output(0)) found[0] = with_sizes(rows.mm(weight_.unpack()), x_sizes_);
    if (task_should_compute_output(1)) found[1] = weight_gradient(rows);
    if (num_outputs() > 2 && task_should_compute_output(2))
      found[2] = bias_gradient(of_more_ == BiasOfMore::within ? rows : dy);
    return found;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    x_.reset_data();
    weight_.reset_data();
  }

 private:
  // Undefined: none, or the gradient is to be differentiated again.
  at::Tensor place(std::size_t output, const at::Tensor& dy) const {
    return at::GradMode::is_enabled() ? at::Tensor() : GradientHooks::take_place(*this, output, dy.scalar_type());
  }

  // Undefined where it lies in its place. So is the bias's.
  at::Tensor weight_gradient(const at::Tensor& dy) {
    const at::Tensor x = rows_of(x_.unpack());
    at::Tensor to = place(1, dy);
    if (!to.defined()) return dy.t().mm(x);
    at::mm_out(to, dy.t(), x);
    return {};
  }

  at::Tensor bias_gradient(const at::Tensor& dy) const {
    std::vector<std::int64_t> all_but_last(std::size_t(dy.dim()) - 1);
    std::iota(all_but_last.begin(), all_but_last.end(), 0);
    at::Tensor to = place(2, dy);
    if (!to.defined()) return dy.sum(all_but_last);
    at::sum_out(to, dy, all_but_last);
    return {};
  }

  const std::vector<std::int64_t> x_sizes_;
  const BiasOfMore of_more_;
  SavedVariable x_;
  SavedVariable weight_;  ///< where the gradient of x is wanted
};

bool is_in_rows(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         !torch::autograd::isFwGradDefined(tensor);
}

// Without a place for the weight's gradient there is nothing to gain.
bool can_be_direct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::GradMode::is_enabled() && weight.requires_grad() && x.dim() >= 2 && is_in_rows(x) && is_in_rows(weight) &&
         weight.dim() == 2 && weight.numel() > 0 && x.size(-1) == weight.size(1) && x.stride(-2) != 1 &&
         x.scalar_type() == weight.scalar_type() &&
         (!bias.defined() || (is_in_rows(bias) && bias.scalar_type() == weight.scalar_type() && bias.dim() == 1 &&
                              bias.size(0) == weight.size(0))) &&
         GradientHooks::has_place(weight);
}

at::Tensor value(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, BiasOfMore of_more) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const bool within = bias.defined() && (x.dim() == 2 || of_more == BiasOfMore::within);
  at::Tensor y = within ? at::addmm(bias, rows_of(x), weight.t()) : at::mm(rows_of(x), weight.t());
  if (x.dim() > 2) {
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    y = y.view(sizes);
  }
  return bias.defined() && !within ? y.add_(bias) : y;
}

at::Tensor direct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, BiasOfMore of_more) {
  torch::autograd::edge_list inputs{torch::autograd::impl::gradient_edge(x),
                                    torch::autograd::impl::gradient_edge(weight)};
  if (bias.defined()) inputs.push_back(torch::autograd::impl::gradient_edge(bias));
  const std::shared_ptr<LinearBackward> node(new LinearBackward(x, weight, of_more, std::move(inputs)),
                                             torch::autograd::deleteNode);
  at::Tensor y = value(x, weight, bias, of_more);
  torch::autograd::set_history(y, node);
  return y;
}

// As autocast casts it for a product.
at::Tensor cast(const at::Tensor& x) {
  if (!at::autocast::is_autocast_enabled(at::kCPU) || !x.is_cpu()) return x;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(at::kCPU), x, at::kCPU);
}

bool is_computed_as_it_is(const at::Tensor& weight) {
  return !at::autocast::is_autocast_enabled(at::kCPU) ||
         at::autocast::get_autocast_dtype(at::kCPU) == weight.scalar_type();
}

// Undefined where PyTorch computes it.
at::Tensor if_direct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, BiasOfMore of_more) {
  if (!is_computed_as_it_is(weight)) return {};
  const at::Tensor input = cast(x);
  return can_be_direct(input, weight, bias) ? direct(input, weight, bias, of_more) : at::Tensor();
}

}  // namespace

at::Tensor LinearImpl::forward(const at::Tensor& x) {
  const at::Tensor y = if_direct(x, weight, bias, BiasOfMore::behind);
  return y.defined() ? y : torch::nn::LinearImpl::forward(x);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor y = if_direct(x, weight, bias, BiasOfMore::within);
  return y.defined() ? y : at::linear(x, weight, bias);
}

std::shared_ptr<torch::nn::Module> LinearImpl::clone(const std::optional<at::Device>& device) const {
  return copied(*this, std::make_shared<LinearImpl>(options), device);
}

void LinearImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::nn::Linear(in_features=" << options.in_features() << ", out_features=" << options.out_features()
         << ", bias=" << std::boolalpha << options.bias() << ')';
}

}  // namespace lockstep::nn
