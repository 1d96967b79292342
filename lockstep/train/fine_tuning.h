#pragma once

// Weights of another task as a start, and parts of the model that keep them.

#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/image_model.h"
#include "lockstep/train/additions.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// A model to train.
struct StartModel {
  std::shared_ptr<models::ImageModel> model;
  std::string new_layer;   ///< why its last layer has the seed's weights and not those of the file; empty: it has them
  std::string checkpoint;  ///< whose weights it has, only to be evaluated; empty: those of none
};

/// make_model() with the parameters of options.freeze frozen. Where options.weights holds a last layer that differs
/// from the model's in the number of classes only, the model keeps its own, unless it is not trained
/// (options.test_only).
StartModel make_start_model(const Options& options, const models::ImageTask& task = {},
                            const Additions& additions = {});

/// The patterns in "a.*,b.weight".
std::vector<std::string> patterns_of(const std::string& text);

/// Sets requires_grad to false for the parameters whose names fit one of the patterns, as fnmatch(3) has it; a star
/// also stands for dots. UsageError for a pattern that fits none, with a near name, and when nothing is left to train.
void freeze(const std::vector<std::string>& patterns, torch::nn::Module& model);

}  // namespace lockstep::train
