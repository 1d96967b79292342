#pragma once

// What predict() gave, in a file.
//
//   lockstep::check_prediction_file("predictions.csv", world);    // before the work: can it be written?
//   const at::Tensor logits = lockstep::predict(ddp, test, ...);
//   lockstep::write_predictions("predictions.csv", {{"class", logits.argmax(1)}, {"logit", logits}}, world);

#include <ATen/core/Tensor.h>

#include <string>
#include <variant>
#include <vector>

#include "lockstep/comm/world.h"

namespace lockstep::evaluation {

/// What is said of every sample: numbers, [N] or [N, K], or N words.
struct PredictionColumn {
  std::string name;
  std::variant<at::Tensor, std::vector<std::string>> cells;
};

/// Rank 0 writes the columns to `path`, so that the file appears whole or not at all; the other ranks do nothing. Its
/// ending decides:
///
///   .csv          a line "sample" and the names, then a line for each sample, counted from 0. A column [N, K] is K of
///                 them, NAME_0 … NAME_(K-1). A number is the shortest decimal that reads back as the same one, true
///                 and false are 1 and 0, a word is quoted where RFC 4180 asks for it.
///   .safetensors  a tensor for each column, with its name, dtype and shape [N, ...].
///
/// UsageError naming the file: it cannot be written; another ending; no columns, one name twice, other numbers of
/// samples; for .csv a tensor that is complex or has another shape, for .safetensors words.
void write_predictions(const std::string& path, const std::vector<PredictionColumn>& columns, const comm::World& world);

/// The same UsageError, before there is anything to write, when the file cannot be written or has another ending.
void check_prediction_file(const std::string& path, const comm::World& world);

/// The text of a .csv. UsageError as above. Pure function.
std::string predictions_csv(const std::vector<PredictionColumn>& columns);

}  // namespace lockstep::evaluation

namespace lockstep {
using evaluation::check_prediction_file;
using evaluation::write_predictions;
}  // namespace lockstep
