#include "lockstep/train/evaluation.h"

#include <ATen/ops/full.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <limits>

#include "lockstep/evaluation/evaluate.h"
#include "lockstep/evaluation/outputs.h"
#include "lockstep/train/criterion.h"

namespace lockstep::train {
namespace {

std::string name_of(const char* sum, std::int64_t target) { return sum + std::to_string(target); }

void add_columns(Sums& sums, const char* name, const at::Tensor& rows) {
  const at::Tensor columns = rows.sum(0).contiguous();
  for (std::int64_t target = 0; target < columns.size(0); ++target)
    sums[name_of(name, target)] = columns.const_data_ptr<double>()[target];
}

// The mean over the targets. Squares about the mean follow from those about any number that is near the targets.
double r2_of(const evaluation::Totals& totals, std::int64_t targets) {
  double sum = 0;
  for (std::int64_t target = 0; target < targets; ++target) {
    const double shifted = totals.sums.at(name_of("shifted", target));
    const double spread = totals.sums.at(name_of("square", target)) - shifted * shifted / double(totals.samples);
    sum +=
        spread > 0 ? 1 - totals.sums.at(name_of("error", target)) / spread : std::numeric_limits<double>::quiet_NaN();
  }
  return sum / double(targets);
}

// Under autocast a model without the wrapper gives half the digits, and their loss would be of as many.
at::Tensor in_single(at::Tensor outputs) {
  return at::isReducedFloatingType(outputs.scalar_type()) ? outputs.to(at::kFloat) : outputs;
}

std::int64_t classes_of_all(comm::Group& group, std::int64_t mine) {
  const at::Tensor classes = at::full({1}, mine, at::kLong);
  group.all_reduce(classes, comm::ReduceOp::max);
  return classes.item<std::int64_t>();
}

}  // namespace

std::int64_t evaluation_chunk(const models::ImageTask& task) {
  constexpr std::int64_t kMostValues = std::int64_t(1) << 22;
  return std::clamp<std::int64_t>(kMostValues / (task.channels * task.height * task.width), 1, 500);
}

Evaluation evaluate(torch::nn::Module& model, comm::Group& group, const std::shared_ptr<const data::Batches>& set,
                    const Forward& forward, const evaluation::PassOptions& pass) {
  AnswerCount answers;
  std::int64_t classes = 0;  // the same on all ranks, but one that has no batch does not know it
  const auto sums_of = [&](const evaluation::PlacedBatch& placed) -> Sums {
    const data::Batch& batch = placed.batch;
    const at::Tensor logits = in_single(outputs_of(forward, batch.data));
    answers.add(logits, batch.target, placed.first);
    classes = logits.size(1);
    const at::Tensor loss = torch::nn::functional::cross_entropy(
        logits, batch.target, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
    const at::Tensor correct = logits.argmax(1).eq(batch.target).sum();
    const at::Tensor best = std::get<1>(logits.topk(std::min<std::int64_t>(5, logits.size(1)), 1));
    const at::Tensor near = best.eq(batch.target.unsqueeze(1)).sum();
    return {{"loss", loss.item<double>()},
            {"correct", double(correct.item<std::int64_t>())},
            {"near", double(near.item<std::int64_t>())}};
  };
  const evaluation::Totals totals = evaluation::evaluate_placed(model, group, set, sums_of, pass);
  return {.loss = totals.mean("loss"),
          .top1 = totals.mean("correct"),
          .top5 = totals.mean("near"),
          .samples = totals.samples,
          .answers = answers.of_all(group, classes_of_all(group, classes))};
}

Evaluation evaluate_errors(torch::nn::Module& model, comm::Group& group,
                           const std::shared_ptr<const data::Batches>& set, const Forward& forward,
                           const std::string& loss, const evaluation::PassOptions& pass) {
  const std::int64_t first[] = {0};
  const at::Tensor near = set->make(0, first).target.to(at::kDouble);
  const auto sums_of = [&](const data::Batch& batch) -> Sums {
    const at::Tensor target = batch.target.to(at::kDouble);
    const at::Tensor error = difference(outputs_of(forward, batch.data).to(at::kDouble), target);
    const at::Tensor shifted = target.sub(near);
    Sums sums{{"loss", losses_of(loss, error).sum().item<double>()}, {"absolute", error.abs().sum().item<double>()}};
    add_columns(sums, "error", error.square());
    add_columns(sums, "shifted", shifted);
    add_columns(sums, "square", shifted.square());
    return sums;
  };
  const evaluation::Totals totals = evaluation::evaluate(model, group, set, sums_of, pass);
  const std::int64_t targets = near.size(1);
  return {.loss = totals.mean("loss") / double(targets),
          .samples = totals.samples,
          .errors = Errors{.mae = totals.mean("absolute") / double(targets), .r2 = r2_of(totals, targets)}};
}

}  // namespace lockstep::train
