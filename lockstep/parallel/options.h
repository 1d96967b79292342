#pragma once

// What a user may tell the data-parallel engine.

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/amp/autocast.h"
#include "lockstep/parallel/ema.h"

namespace lockstep::parallel {

struct DataParallelOptions {
  /// Of the model, where a program trains several on one group with optimizers of ours: each has a name of its own, by
  /// which a restart finds its state again. The same on all ranks. See commit_together().
  std::string name = {};
  /// Logical shards S the global batch is cut into. It decides the bits of the result; the
  /// number of ranks does not. 0: as many as ranks. At least as many as ranks.
  int shards = 0;
  /// Of the random numbers drawn inside shards (dropout): see shard_seed().
  std::uint64_t seed = 0;
  /// Mixed precision of forward passes through the wrapper, whose result comes in float32. With bf16
  /// and an optimizer of ours, the parameters of linear layers and convolutions (amp/bf16_parameters.h)
  /// become bfloat16 tensors, copies that the update writes; their float32 weights are in state_dict().
  Amp amp = Amp::none;
  /// Parameters may stay without a gradient in some shards, which then count as zeros, or in all of a step's, which
  /// then keep their weights and optimizer state, as with PyTorch's DistributedDataParallel. False: Error naming them.
  bool find_unused_parameters = false;
  /// Keeps the exponential moving average of the weights, for Engine::ema(). Of an optimizer of ours only.
  std::optional<EmaOptions> ema = {};
  /// Pictures and convolution weights in channels-last memory format.
  bool channels_last = false;
  /// With an optimizer of torch::optim each rank has weights of its own. Behind every so many averaged backward passes
  /// the next forward compares them over the ranks, bit for bit, and throws an Error on all that names rank, parameter
  /// and step where one has others. 0: never. With an optimizer of ours there is one copy, and this a UsageError.
  std::uint64_t verify_replicas_every = 0;
};

/// As PyTorch's DistributedDataParallel.join(); of Engine::join().
struct JoinOptions {
  /// Gradients are divided by the number of ranks, as always; false: by the number of those that still have inputs, so
  /// that the last batches weigh as much as the first.
  bool divide_by_initial_world_size = true;
  /// The first rank without inputs ends the loop of all: Error on all ranks, after which the group can be used.
  bool throw_on_early_termination = false;
};

}  // namespace lockstep::parallel
