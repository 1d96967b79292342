#pragma once

// Batches of a set that lies in memory as tensors.

#include <ATen/core/Tensor.h>

#include <memory>

#include "lockstep/data/batch.h"

namespace lockstep::data {

/// Sample i is row i of a data tensor and of a target tensor, as in torch.utils.data.TensorDataset; nothing is
/// converted. Thread-safe.
class TensorBatches : public Batches {
 public:
  /// `data` [N, ...] and `target` [N, ...], of any dtypes, in CPU memory; the target may be undefined, then those of
  /// the batches are. They are shared, not copied, when each row is in one piece, wherever the rows lie (a contiguous
  /// tensor, every second row of one, one row expanded to N); others, and conjugate and negative views, are written
  /// out once. UsageError when they differ in N, or one has no dimension, is not dense or not in CPU memory.
  explicit TensorBatches(const at::Tensor& data, const at::Tensor& target = {});

  std::int64_t size() const override { return data_.size(0); }

  /// data [B, ...] and target [B, ...], rows `indices` in that order; the same in every epoch. UsageError for an index
  /// outside the set.
  Batch make(std::uint64_t epoch, std::span<const std::int64_t> indices) const override;

 private:
  at::Tensor data_;
  at::Tensor target_;
};

/// The same in one line: DataLoader loader(data::tensors(x, y), ddp.part(), {.batch_size = 64}).
std::shared_ptr<const TensorBatches> tensors(const at::Tensor& data, const at::Tensor& target = {});

}  // namespace lockstep::data
