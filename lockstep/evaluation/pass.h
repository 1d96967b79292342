#pragma once

// One pass of a model over a set, without training: the set is cut into batches of a fixed size, of which the ranks
// take every so many-th. Which rank takes a batch changes nothing about it.

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include "lockstep/comm/group.h"
#include "lockstep/data/batch.h"

namespace torch::nn {
class Module;  // its header takes ten seconds to compile
}

namespace lockstep::evaluation {

struct PassOptions {
  /// Samples of a batch, at least 1; the last batch may have fewer. Part of the arithmetic: another number may give
  /// other bits, the number of ranks does not.
  std::int64_t batch_size = 500;
  int num_workers = 1;      ///< threads that make batches, at least 1
  int prefetch_factor = 2;  ///< batches made ahead for each of them, at least 1
  double timeout = 300;     ///< seconds that a batch may take, more than 0
  /// Whether this rank was asked to end, as StopOn::requested says: asked before each batch. One rank that was is
  /// enough, and all throw Stopped. It costs one small collective for as many batches as there are ranks. Given on all
  /// ranks or on none; empty: the pass goes to its end.
  std::function<bool()> asked_to_stop = {};
};

/// A pass was left before its end, by all ranks behind the same batch, since one was asked to: no failure. What was
/// found so far is of no use, since it depends on the moment.
class Stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "evaluation: a rank was asked to stop"; }
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
/// afterwards each of its modules is in its own mode again.
///
/// Collective. `set` is the whole set, the same on all ranks. UsageError on all ranks when it is empty, when the batch
/// size is below 1, and, naming the numbers, when ranks have sets of different sizes or different batch sizes. What the
/// set or visit() throws on a rank, or other options there that cannot be, ends the group, as in a step: the other
/// ranks get GroupAborted.
void for_each_batch(torch::nn::Module& model, comm::Group& group, const std::shared_ptr<const data::Batches>& set,
                    const PassOptions& options, const std::function<void(const PlacedBatch&)>& visit);

}  // namespace lockstep::evaluation
