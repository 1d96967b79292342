#pragma once

// What a model says of every sample of a set.
//
//   const at::Tensor logits =
//       lockstep::predict(ddp, test, [&](const lockstep::data::Batch& batch) { return ddp(batch.data); });
//   lockstep::write_predictions("logits.safetensors", {{"logits", logits}}, world);

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <utility>

#include "lockstep/comm/group.h"
#include "lockstep/data/map_batches.h"
#include "lockstep/evaluation/pass.h"
#include "lockstep/parallel/engine.h"

namespace lockstep::evaluation {

/// What the model says of a batch: a row for each sample, [B, ...] in CPU memory. Rows have the same shape and dtype
/// for every batch.
using RowsOf = std::function<at::Tensor(const data::Batch& batch)>;

/// Collective. The rows of all samples in their order, [N, ...], on every rank: all of them must fit into its memory.
/// The bits do not depend on the number of ranks. `set` and `model` are as for evaluate(), and `rows_of` is called as
/// `sums_of` there. UsageError on all ranks, naming the samples, when a batch gave no rows, or others than the first
/// one. What `rows_of` throws, and other errors: as for_each_batch().
[[nodiscard]] at::Tensor predict(torch::nn::Module& model, comm::Group& group,
                                 const std::shared_ptr<const data::Batches>& set, const RowsOf& rows_of,
                                 const PassOptions& options = {});

/// The same for a wrapped model, which `rows_of` calls through the wrapper. As evaluate(), between steps.
[[nodiscard]] at::Tensor predict(parallel::Engine& ddp, const std::shared_ptr<const data::Batches>& set,
                                 const RowsOf& rows_of, const PassOptions& options = {});

/// Over a set of your own: see data::MapStyle.
template <data::MapStyle Set>
[[nodiscard]] at::Tensor predict(parallel::Engine& ddp, Set set, const RowsOf& rows_of,
                                 const PassOptions& options = {}) {
  return predict(ddp, std::make_shared<data::MapBatches<Set>>(std::move(set)), rows_of, options);
}

}  // namespace lockstep::evaluation

namespace lockstep {
using evaluation::predict;
}  // namespace lockstep
