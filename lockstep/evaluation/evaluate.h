#pragma once

// What a model is worth, for any task: sums over the samples of a set.
//
//   const auto found = lockstep::evaluate(ddp, test, [&](const lockstep::data::Batch& batch) -> lockstep::Sums {
//     const at::Tensor error = lockstep::difference(ddp(batch.data), batch.target);
//     return {{"squared", error.square().sum().item<double>()}, {"absolute", error.abs().sum().item<double>()}};
//   });
//   const double rmse = std::sqrt(found.mean("squared"));
//
// Every sample counts once. The sums of a batch are added in float64 in the order of the samples, on every rank alike,
// so the numbers have the same bits whatever the number of ranks.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/comm/group.h"
#include "lockstep/data/map_batches.h"
#include "lockstep/evaluation/pass.h"
#include "lockstep/parallel/engine.h"

namespace lockstep::evaluation {

/// Sums over the samples of a batch, by name.
using Sums = std::map<std::string, double>;

/// What a batch adds. The names are the same for every batch.
using SumsOf = std::function<Sums(const data::Batch& batch)>;

/// The sums over a whole set.
struct Totals {
  Sums sums;
  std::int64_t samples = 0;

  /// The sum of this name over the number of samples. UsageError when there is no such sum.
  double mean(const std::string& name) const;
};

/// Collective. The same on all ranks. `set` is the whole set, the same on all ranks, and so are the parameters and
/// buffers of `model`. `sums_of` is called for the batches of this rank with `model` in evaluation mode and without
/// autograd. UsageError on all ranks, naming the samples, when a batch gave other names than the first one; when there
/// are no names. What `sums_of` throws, and other errors: as for_each_batch().
Totals evaluate(torch::nn::Module& model, comm::Group& group, const std::shared_ptr<const data::Batches>& set,
                const SumsOf& sums_of, const PassOptions& options = {});

/// The same with the place of a batch among those of all ranks.
using PlacedSumsOf = std::function<Sums(const PlacedBatch& batch)>;
Totals evaluate_placed(torch::nn::Module& model, comm::Group& group, const std::shared_ptr<const data::Batches>& set,
                       const PlacedSumsOf& sums_of, const PassOptions& options = {});

/// The same for a wrapped model, which `sums_of` calls through the wrapper: mixed precision and memory format are its.
/// Between steps. Every rank gets rank 0's module buffers (Engine::begin_evaluation).
Totals evaluate(parallel::Engine& ddp, const std::shared_ptr<const data::Batches>& set, const SumsOf& sums_of,
                const PassOptions& options = {});

/// Over a set of your own: see data::MapStyle.
template <data::MapStyle Set>
Totals evaluate(parallel::Engine& ddp, Set set, const SumsOf& sums_of, const PassOptions& options = {}) {
  return evaluate(ddp, std::make_shared<data::MapBatches<Set>>(std::move(set)), sums_of, options);
}

}  // namespace lockstep::evaluation

namespace lockstep {
using evaluation::evaluate;
using evaluation::Sums;
}  // namespace lockstep
