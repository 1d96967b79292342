#include "lockstep/evaluation/pass.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::evaluation {
namespace {

// Sets the mode for a scope.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : module_(module), before_(module.is_training()) {
    module_.eval();
  }
  ~EvaluationMode() { module_.train(before_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool before_;
};

// Number k is the k-th batch of this rank.
data::BatchSource batches_of_rank(const std::shared_ptr<const data::Batches>& set, std::int64_t batch_size,
                                  const comm::Topology& place) {
  return [set, batch_size, rank = place.rank, ranks = place.world](std::int64_t number) {
    const std::int64_t first = (rank + number * ranks) * batch_size;
    std::vector<std::int64_t> indices(std::size_t(std::min(batch_size, set->size() - first)));
    std::iota(indices.begin(), indices.end(), first);
    return set->make(0, indices);
  };
}

void check(const data::Batches& set, const PassOptions& options) {
  if (options.batch_size < 1)
    throw UsageError("evaluation: batch_size is " + std::to_string(options.batch_size) + "; at least 1");
  if (set.size() < 1) throw UsageError("evaluation: the set has no samples");
}

}  // namespace

void for_each_batch(torch::nn::Module& model, const std::shared_ptr<const data::Batches>& set,
                    const comm::Topology& place, const PassOptions& options,
                    const std::function<void(const PlacedBatch&)>& visit) {
  check(*set, options);
  const at::NoGradGuard no_grad;
  const EvaluationMode mode(model);
  const std::int64_t batches = batches_of(set->size(), options.batch_size);
  const std::int64_t mine = (batches - place.rank + place.world - 1) / place.world;
  data::Loader loader(batches_of_rank(set, options.batch_size, place), 0, mine, options.loader);
  for (std::int64_t number = place.rank; number < batches; number += place.world)
    visit({.number = number, .first = number * options.batch_size, .batch = loader.next().value()});
}

}  // namespace lockstep::evaluation
