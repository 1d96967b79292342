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

ChunkSums evaluate_chunk(const Forward& forward, const data::Batch& batch) {
  const at::Tensor logits = outputs_of(forward, batch.data);
  const at::Tensor loss = torch::nn::functional::cross_entropy(
      logits, batch.target, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  return {loss.item<double>(), double(logits.argmax(1).eq(batch.target).sum().item<std::int64_t>())};
}

// Number k is the k-th chunk of this rank.
data::BatchSource chunks_of(const EvaluationInput& input, int rank, int ranks) {
  return [set = input.set, size = input.chunk, rank, ranks](std::int64_t number) {
    const std::int64_t first = (rank + number * ranks) * size;
    std::vector<std::int64_t> indices(std::size_t(std::min(size, set->size() - first)));
    std::iota(indices.begin(), indices.end(), first);
    return set->make(0, indices);
  };
}

}  // namespace

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
  const torch::NoGradGuard no_grad;
  const EvaluationMode mode(model);
  const std::int64_t samples = input.set->size();
  const std::int64_t chunks = (samples + input.chunk - 1) / input.chunk;
  const std::int64_t mine = (chunks - group.rank() + group.size() - 1) / group.size();
  data::Loader loader(chunks_of(input, group.rank(), group.size()), 0, mine, input.loader);
  // Row c is filled by the rank that has chunk c and zero elsewhere: the sum over the ranks is exact.
  const at::Tensor sums = torch::zeros({chunks, 2}, torch::kDouble);
  auto rows = sums.accessor<double, 2>();
  for (std::int64_t chunk = group.rank(); chunk < chunks; chunk += group.size()) {
    const ChunkSums found = evaluate_chunk(forward, *loader.next());
    rows[chunk][0] = found.loss;
    rows[chunk][1] = found.correct;
  }
  group.all_reduce(sums);
  Evaluation result{.samples = samples};
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    result.loss += rows[chunk][0];
    result.top1 += rows[chunk][1];
  }
  result.loss /= double(samples);
  result.top1 /= double(samples);
  return result;
}

}  // namespace lockstep::train
