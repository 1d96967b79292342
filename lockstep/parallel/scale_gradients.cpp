#include "lockstep/parallel/scale_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <torch/nn/module.h>

#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/named_tensors.h"
#include "lockstep/parallel/shard_record.h"
#include "lockstep/parallel/uneven_inputs.h"

namespace lockstep::parallel {

void scale_gradients(Engine& ddp, const GradientScale& scale) {
  if (ddp.state().shared() != nullptr)
    throw UsageError(
        "scale_gradients: with an optimizer of ours it is the step that divides: optimizer.step({.denominator = ...})");
  if (UnevenInputs::of(ddp.group()) != nullptr)
    throw UsageError(
        "scale_gradients: within join(), where ranks without inputs do not take part; let each rank make every step, "
        "one without samples with a loss and a denominator of 0");
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> all = ddp.group().all_gather(at::full({1}, scale.denominator, at::kDouble));
  const auto of_rank = [&](int rank) { return *all[std::size_t(rank)].const_data_ptr<double>(); };
  const int ranks = ddp.group().size();
  for (int rank = 0; rank < ranks; ++rank)
    if (!std::isfinite(of_rank(rank)) || of_rank(rank) < 0)
      throw Error("scale_gradients: denominator is " + std::to_string(of_rank(rank)) + " on rank " +
                  std::to_string(rank) + "; finite and at least 0");
  const MeanWeight weight =
      mean_weight(ranks, [&](int rank) { return state::ShardRecord{.denominator = of_rank(rank)}; });
  if (!weight.why_not.empty()) throw Error("scale_gradients: " + weight.why_not);
  for (const auto& [name, parameter] : parameters_of(ddp.module())) {
    const at::Tensor& gradient = parameter.grad();
    if (gradient.defined()) at::Tensor(gradient).mul_(weight.value * ranks);  // backward has made the mean of it
  }
}

}  // namespace lockstep::parallel
