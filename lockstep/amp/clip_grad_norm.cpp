#include "lockstep/amp/clip_grad_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::amp {

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type,
                           bool error_if_nonfinite) {
  if (!(max_norm >= 0)) throw UsageError("clip_grad_norm_: max_norm is " + std::to_string(max_norm) + ", below 0");
  if (!(norm_type > 0))
    throw UsageError("clip_grad_norm_: norm_type is " + std::to_string(norm_type) + ", not above 0");
  const at::NoGradGuard no_grad;
  // One kernel takes tensors of one device and one dtype.
  std::map<std::pair<std::string, at::ScalarType>, std::vector<at::Tensor>> batches;
  at::Device device = at::kCPU;
  bool any = false;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (!std::exchange(any, true)) device = gradient.device();
    batches[{gradient.device().str(), gradient.scalar_type()}].push_back(gradient);
  }
  if (!any) return at::zeros({});
  std::vector<at::Tensor> norms;
  for (const auto& [batch, gradients] : batches)
    for (const at::Tensor& norm : at::_foreach_norm(gradients, norm_type)) norms.push_back(norm.to(device, at::kFloat));
  const at::Tensor total = at::linalg_vector_norm(at::stack(norms), norm_type);
  if (error_if_nonfinite && !std::isfinite(total.item<double>()))
    throw Error("clip_grad_norm_: the norm of the gradients is " + std::to_string(total.item<double>()));
  const at::Tensor factor = (max_norm / (total + 1e-6)).clamp_max(1.0);
  for (const auto& [batch, gradients] : batches) at::_foreach_mul_(gradients, factor.to(gradients.front().device()));
  return total;
}

}  // namespace lockstep::amp
