#include "lockstep/train/criterion.h"

#include <ATen/Functions.h>

#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::train {

Criterion::Criterion(const Options& options, std::int64_t classes)
    : model_(options.model), loss_(options.loss), classes_(classes), label_smoothing_(options.label_smoothing) {
  const auto weights = std::int64_t(options.class_weights.size());
  if (weights == 0) return;
  if (weights != classes)
    throw UsageError("--class-weights has " + std::to_string(weights) + " numbers, the data set has " +
                     std::to_string(classes) + " classes");
  weight_ = at::tensor(options.class_weights, at::kFloat);
}

at::Tensor Criterion::operator()(const at::Tensor& output, const at::Tensor& target) const {
  check_shape(output, target);
  if (loss_ == "mse") return at::mse_loss(output.to(at::kFloat), target);
  if (loss_ == "l1") return at::l1_loss(output.to(at::kFloat), target);
  if (loss_ == "smooth_l1") return at::smooth_l1_loss(output.to(at::kFloat), target);
  // Samples of classes without weight alone have no mean: 0 / 0 would make all weights NaN.
  const at::Tensor weight = weight_.defined() ? weight_.to(output.device()) : weight_;
  if (weight.defined() && target.dim() == 1 && weight.index_select(0, target).sum().item<float>() == 0)
    return output.sum() * 0;
  return at::cross_entropy_loss(output, target, weight, at::Reduction::Mean, -100, label_smoothing_);
}

// Where shapes can be broadcast, PyTorch's losses would take another one.
void Criterion::check_shape(const at::Tensor& output, const at::Tensor& target) const {
  if (output.dim() == 2 && output.size(0) == target.size(0) && output.size(1) == classes_) return;
  std::ostringstream text;
  text << "--model " << model_ << " makes " << output.sizes() << " of " << target.size(0) << " samples: ["
       << target.size(0) << ", " << classes_ << "] expected";
  throw UsageError(text.str());
}

at::Tensor losses_of(const std::string& loss, const at::Tensor& difference) {
  if (loss == "mse") return difference.square();
  if (loss == "l1") return difference.abs();
  const at::Tensor size = difference.abs();
  return at::where(size.lt(1), difference.square().mul(0.5), size.sub(0.5));
}

}  // namespace lockstep::train
