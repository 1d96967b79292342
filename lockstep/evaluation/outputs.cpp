#include "lockstep/evaluation/outputs.h"

#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::evaluation {

at::Tensor outputs_of(const std::function<at::Tensor(const at::Tensor&)>& forward, const at::Tensor& data) {
  if (data.dim() != 5) return forward(data);
  return forward(data.flatten(0, 1)).unflatten(0, {data.size(0), data.size(1)}).mean(1);
}

at::Tensor difference(const at::Tensor& output, const at::Tensor& target) {
  if (output.sizes() != target.sizes()) {
    std::ostringstream text;
    text << "difference: output " << output.sizes() << " and target " << target.sizes() << ", equal shapes expected";
    if (output.dim() == target.dim() + 1 && output.size(-1) == 1) text << ": output.squeeze(-1) has the target's";
    throw UsageError(text.str());
  }
  return output - target;
}

}  // namespace lockstep::evaluation
