#pragma once

// Forward and backward of one step.

#include <ATen/core/Tensor.h>

#include <functional>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/data/batch.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep::train {

/// What a rank computes of a step at a time: data and target.
using Shard = parallel::Shards::Shard;

/// The mean loss over the samples of a shard, with its graph.
using ShardLoss = std::function<at::Tensor(const Shard& shard)>;

/// Forward and backward of this rank's shards of a step, each with its loss in the step's record. The batch is brought
/// to the model's device.
void run_shards(parallel::Engine& engine, const data::Batch& batch, const ShardLoss& loss, amp::GradScaler& scaler);

/// The same, and before the backward of its last shard each rank agrees with the others about their losses: where one
/// is no finite number all throw the same Error, which names step, shard and rank. Collective, with one small message
/// per step.
void run_guarded_shards(parallel::Engine& engine, const data::Batch& batch, const ShardLoss& loss,
                        amp::GradScaler& scaler);

}  // namespace lockstep::train
