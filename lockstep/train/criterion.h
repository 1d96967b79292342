#pragma once

// The loss to train by.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "lockstep/train/options.h"

namespace lockstep::train {

/// options.loss with its class weights and label smoothing; means over the samples, and over the targets of each.
/// PyTorch's functions of these names, smooth_l1 with beta 1.
class Criterion {
 public:
  /// `classes`: of the model, or its targets. UsageError when there are weights for another number of classes.
  Criterion(const Options& options, std::int64_t classes);

  /// output [B, classes] and target: of a classification [B] or, mixed, [B, classes]; of a regression [B, classes].
  /// UsageError that names the model for an output of another shape.
  at::Tensor operator()(const at::Tensor& output, const at::Tensor& target) const;

 private:
  void check_shape(const at::Tensor& output, const at::Tensor& target) const;

  std::string model_, loss_;
  std::int64_t classes_;
  at::Tensor weight_;  // undefined: all 1
  double label_smoothing_;
};

/// What a regression by `loss` loses for each target, as float64: squares, absolutes, or smooth_l1 with beta 1 of
/// `difference`, float64.
at::Tensor losses_of(const std::string& loss, const at::Tensor& difference);

}  // namespace lockstep::train
