#pragma once

// Features brought to mean 0 and standard deviation 1, as scikit-learn's StandardScaler does it.

#include <ATen/core/Tensor.h>

namespace lockstep::data {

/// Learns from the training rows, and applies the same to all others: z = (x - mean) / scale, each column by itself,
/// computed in float64. The scale is the standard deviation over the rows, divided by N and not by N - 1; that of a
/// column of equal numbers, or too close to each other for one in float64, is 1. Thread-safe.
class Standardizer {
 public:
  /// `data`: [rows, columns], at least one row, as read_table() gives it. For the same bits on all ranks: the same
  /// rows, so the whole table and not a rank's slice. UsageError for another shape, and for a column with a number that
  /// is not finite or too large (1e200: its square is not finite), which is named by its place, from 1.
  explicit Standardizer(const at::Tensor& data);

  /// A new tensor of the shape of `data` [rows, columns]; of its type, float32 for whole numbers. UsageError for
  /// another number of columns.
  at::Tensor operator()(const at::Tensor& data) const;

  const at::Tensor& mean() const { return mean_; }    ///< float64 [columns]
  const at::Tensor& scale() const { return scale_; }  ///< float64 [columns]

 private:
  at::Tensor mean_;
  at::Tensor scale_;
};

}  // namespace lockstep::data
