#pragma once

// What a run is made of, by the names in its options.

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/amp/autocast.h"
#include "lockstep/models/image_model.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/train/additions.h"
#include "lockstep/train/options.h"
#include "lockstep/train/options_optimizers.h"

namespace lockstep::train {

/// The model of options.model for `task`, its last layer replaced by options.head, with the initial weights of
/// options.seed, or those of the file options.weights; one of `additions` before a built-in one. UsageError listing
/// every difference when the file does not fit.
std::shared_ptr<models::ImageModel> make_model(const Options& options, const models::ImageTask& task = {},
                                               const Additions& additions = {});

/// options.amp.
Amp amp_of(const Options& options);

/// Whether pictures meet weights of four dimensions in it.
bool has_convolutions(const models::ImageModel& model);

/// The parameters of `model` that have a weight decay of their own (options.norm_weight_decay and its like), as
/// torchvision's set_weight_decay() finds them: a bias is one by its name, also within a normalisation layer. Frozen
/// parameters and groups without any are left out.
std::vector<WeightDecay> weight_decays(const Options& options, const torch::nn::Module& model);

/// The optimizer of options.opt for the parameters of `model`, attached to `target` (collective).
std::unique_ptr<optim::Optimizer> make_optimizer(const Options& options, const torch::nn::Module& model,
                                                 optim::Target& target);

}  // namespace lockstep::train
