#include "lockstep/train/evaluation.h"

#include <torch/nn/functional/loss.h>

#include <algorithm>

#include "lockstep/evaluation/evaluate.h"

namespace lockstep::train {

at::Tensor outputs_of(const Forward& forward, const at::Tensor& data) {
  if (data.dim() != 5) return forward(data);
  return forward(data.flatten(0, 1)).unflatten(0, {data.size(0), data.size(1)}).mean(1);
}

std::int64_t evaluation_chunk(const models::ImageTask& task) {
  constexpr std::int64_t kMostValues = std::int64_t(1) << 22;
  return std::clamp<std::int64_t>(kMostValues / (task.channels * task.height * task.width), 1, 500);
}

Evaluation evaluate(torch::nn::Module& model, const Forward& forward, const EvaluationInput& input,
                    comm::Group& group) {
  const auto sums_of = [&](const data::Batch& batch) -> Sums {
    const at::Tensor logits = outputs_of(forward, batch.data);
    const at::Tensor loss = torch::nn::functional::cross_entropy(
        logits, batch.target, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
    const at::Tensor correct = logits.argmax(1).eq(batch.target).sum();
    return {{"loss", loss.item<double>()}, {"correct", double(correct.item<std::int64_t>())}};
  };
  const evaluation::Totals totals = evaluation::evaluate(model, group, input.set, sums_of,
                                                         {.batch_size = input.chunk, .loader = input.loader});
  return {.loss = totals.mean("loss"), .top1 = totals.mean("correct"), .samples = totals.samples};
}

}  // namespace lockstep::train
