#include "lockstep/train/evaluation.h"

#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <algorithm>
#include <numeric>

namespace lockstep::train {
namespace {

// Sets the mode for a scope.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : module_(module), before_(module.is_training()) {
    module_.eval();
  }
  ~EvaluationMode() { module_.train(before_); }

 private:
  torch::nn::Module& module_;
  bool before_;
};

struct ChunkSums {
  double loss;
  double correct;
};

ChunkSums evaluate_chunk(models::ImageModel& model, const data::ImageSet& set, std::int64_t first) {
  std::vector<std::int64_t> indices(std::size_t(std::min(kEvaluationChunk, set.size() - first)));
  std::iota(indices.begin(), indices.end(), first);
  const data::Batch batch = data::make_batch(set, indices);
  const at::Tensor logits = model.forward(batch.data);
  const at::Tensor loss = torch::nn::functional::cross_entropy(
      logits, batch.target, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  return {loss.item<double>(), double(logits.argmax(1).eq(batch.target).sum().item<std::int64_t>())};
}

}  // namespace

Evaluation evaluate(models::ImageModel& model, const data::ImageSet& set, comm::Group& group) {
  const torch::NoGradGuard no_grad;
  const EvaluationMode mode(model);
  const std::int64_t chunks = (set.size() + kEvaluationChunk - 1) / kEvaluationChunk;
  // Row c is filled by the rank that has chunk c and zero elsewhere: the sum over the ranks is exact.
  const at::Tensor sums = torch::zeros({chunks, 2}, torch::kDouble);
  auto rows = sums.accessor<double, 2>();
  for (std::int64_t chunk = group.rank(); chunk < chunks; chunk += group.size()) {
    const ChunkSums mine = evaluate_chunk(model, set, chunk * kEvaluationChunk);
    rows[chunk][0] = mine.loss;
    rows[chunk][1] = mine.correct;
  }
  group.all_reduce(sums);
  Evaluation result{.samples = set.size()};
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    result.loss += rows[chunk][0];
    result.top1 += rows[chunk][1];
  }
  result.loss /= double(set.size());
  result.top1 /= double(set.size());
  return result;
}

}  // namespace lockstep::train
