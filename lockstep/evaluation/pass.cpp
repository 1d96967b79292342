#include "lockstep/evaluation/pass.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/data/loader.h"

namespace lockstep::evaluation {
namespace {

// Evaluation mode for a scope, then for each module the one that it had: a frozen one may differ from the whole.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& root) {
    root.apply([this](torch::nn::Module& module) { before_.emplace_back(&module, module.is_training()); });
    root.eval();
  }
  // train() sets those below, too, which come after their module.
  ~EvaluationMode() {
    for (const auto& [module, training] : before_) module->train(training);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<torch::nn::Module*, bool>> before_;
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

constexpr int kMostThreads = 4096;  // and batches ahead of each: as data::DataLoader

data::LoaderOptions loader_options(const PassOptions& options) {
  if (std::min(options.num_workers, options.prefetch_factor) < 1 ||
      std::max(options.num_workers, options.prefetch_factor) > kMostThreads)
    throw UsageError("evaluation: .num_workers " + std::to_string(options.num_workers) + " and .prefetch_factor " +
                     std::to_string(options.prefetch_factor) + ", 1 to " + std::to_string(kMostThreads) +
                     " of each expected");
  if (!(options.timeout > 0))
    throw UsageError("evaluation: .timeout " + std::to_string(options.timeout) + ", more than 0 seconds expected");
  return {.workers = options.num_workers,
          .prefetch = options.num_workers * options.prefetch_factor,
          .timeout_seconds = options.timeout};
}

std::int64_t size_of(const std::shared_ptr<const data::Batches>& set) {
  if (!set) throw UsageError("evaluation: no set: the pointer to it is null");
  return set->size();
}

// Collective: UsageError on all ranks when they differ in `mine`.
void check_equal(comm::Group& group, const char* what, std::int64_t mine) {
  const std::vector<at::Tensor> all = group.all_gather(at::full({1}, mine, at::kLong));
  const std::int64_t first = all.front().item<std::int64_t>();
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (const auto other = all[rank].item<std::int64_t>(); other != first)
      throw UsageError(std::string("evaluation: ") + what + " is " + std::to_string(first) + " on rank 0 and " +
                       std::to_string(other) + " on rank " + std::to_string(rank) +
                       "; all ranks give the same whole set, and the same batch size");
}

// Collective: whether that is so of any rank.
bool any_was(comm::Group& group, bool mine) {
  const at::Tensor asked = at::full({1}, std::int64_t(mine), at::kLong);
  group.all_reduce(asked, comm::ReduceOp::max);
  return asked.item<std::int64_t>() == 1;
}

}  // namespace

void for_each_batch(torch::nn::Module& model, comm::Group& group, const std::shared_ptr<const data::Batches>& set,
                    const PassOptions& options, const std::function<void(const PlacedBatch&)>& visit) {
  std::int64_t size = 0;
  data::LoaderOptions threads;
  comm::or_abort(group, [&] {
    size = size_of(set);
    threads = loader_options(options);
  });
  check_equal(group, "the size of the set", size);
  check_equal(group, "batch_size", options.batch_size);
  if (options.batch_size < 1)
    throw UsageError("evaluation: batch_size is " + std::to_string(options.batch_size) + "; at least 1");
  if (size < 1) throw UsageError("evaluation: the set has no samples");

  const comm::Topology& place = group.topology();
  const std::int64_t batches = batches_of(size, options.batch_size);
  const std::int64_t mine = (batches - place.rank + place.world - 1) / place.world;
  bool stopped = false;
  comm::or_abort(group, [&] {
    const at::NoGradGuard no_grad;
    const EvaluationMode mode(model);
    data::Loader loader(batches_of_rank(set, options.batch_size, place), 0, mine, threads);
    for (std::int64_t first = 0; first < batches && !stopped; first += place.world) {
      stopped = options.asked_to_stop && any_was(group, options.asked_to_stop());
      const std::int64_t number = first + place.rank;
      if (stopped || number >= batches) continue;
      visit({.number = number, .first = number * options.batch_size, .batch = loader.next().value()});
    }
  });
  if (stopped) throw Stopped();
}

}  // namespace lockstep::evaluation
