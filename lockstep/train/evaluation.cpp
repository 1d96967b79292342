#include "lockstep/train/evaluation.h"

#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "lockstep/evaluation/evaluate.h"
#include "lockstep/evaluation/outputs.h"

namespace lockstep::train {

std::int64_t evaluation_chunk(const models::ImageTask& task) {
  constexpr std::int64_t kMostValues = std::int64_t(1) << 22;
  return std::clamp<std::int64_t>(kMostValues / (task.channels * task.height * task.width), 1, 500);
}

Evaluation evaluate(torch::nn::Module& model, comm::Group& group, const std::shared_ptr<const data::Batches>& set,
                    const Forward& forward, const evaluation::PassOptions& pass) {
  const auto sums_of = [&](const data::Batch& batch) -> Sums {
    const at::Tensor logits = outputs_of(forward, batch.data);
    const at::Tensor loss = torch::nn::functional::cross_entropy(
        logits, batch.target, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
    const at::Tensor correct = logits.argmax(1).eq(batch.target).sum();
    return {{"loss", loss.item<double>()}, {"correct", double(correct.item<std::int64_t>())}};
  };
  const evaluation::Totals totals = evaluation::evaluate(model, group, set, sums_of, pass);
  return {.loss = totals.mean("loss"), .top1 = totals.mean("correct"), .samples = totals.samples};
}

}  // namespace lockstep::train
