#pragma once

// What `lockstep predict` does: a trained model looks at pictures, and a file says what it saw.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/data/picture_set.h"
#include "lockstep/evaluation/prediction_file.h"
#include "lockstep/train/options_predict.h"

namespace lockstep::train {

/// Of a run of `lockstep predict`.
struct PredictionSummary {
  std::int64_t samples = 0;
  std::int64_t correct = 0;  ///< of these, whose largest logit is the label's
};

/// Collective. Rank 0 writes options.output, a .csv, whole or not at all; its bytes do not depend on the number of
/// ranks. UsageError when options, weights and pictures do not fit, or the file cannot be written.
PredictionSummary write_predictions(const PredictOptions& options, const comm::World& world);

/// What the file says: file, label, prediction and probability, classes by their names. `rows`: float64 [N, 3], label,
/// prediction and probability of each sample. Pure function.
std::vector<evaluation::PredictionColumn> columns_of(const at::Tensor& rows, const data::PictureSet& set);

}  // namespace lockstep::train
