#pragma once

// One pass of a model over a set, without training: the set is cut into batches of a fixed size, of which the ranks
// take every so many-th. Which rank takes a batch changes nothing about it.

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/comm/topology.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/loader.h"

namespace lockstep::evaluation {

struct PassOptions {
  /// Samples of a batch, at least 1; the last batch may have fewer. Part of the arithmetic: another number may give
  /// other bits, the number of ranks does not.
  std::int64_t batch_size = 500;
  /// The threads that prepare the batches.
  data::LoaderOptions loader = {};
};

/// How many batches `samples` make.
constexpr std::int64_t batches_of(std::int64_t samples, std::int64_t batch_size) {
  return (samples + batch_size - 1) / batch_size;
}

/// A batch and its place among those of all ranks: `number` counts from 0, `first` is its first sample.
struct PlacedBatch {
  std::int64_t number = 0;
  std::int64_t first = 0;
  data::Batch batch;
};

/// Calls visit() for the batches of this rank, in their order, with the model in evaluation mode and without autograd;
/// afterwards the model is in its mode again. Not collective. UsageError when the set is empty or the batch size below
/// 1; else what the set or visit() throws.
void for_each_batch(torch::nn::Module& model, const std::shared_ptr<const data::Batches>& set,
                    const comm::Topology& place, const PassOptions& options,
                    const std::function<void(const PlacedBatch&)>& visit);

}  // namespace lockstep::evaluation
