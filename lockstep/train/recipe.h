#pragma once

// What a run is made of, by the names in its options.

#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/models/image_model.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// The model of options.model for `task` with the initial weights of options.seed, or those of the file
/// options.weights. UsageError listing every difference when the file does not fit.
std::shared_ptr<models::ImageModel> make_model(const Options& options, const models::ImageTask& task = {});

/// Whether pictures meet weights of four dimensions in it.
bool has_convolutions(const models::ImageModel& model);

/// The optimizer of options.opt, attached to `target` (collective).
std::unique_ptr<optim::Optimizer> make_optimizer(const Options& options, optim::Target& target);

/// The learning rate of each step (from 1). A pure function, so that a restart in the middle finds the same.
using Schedule = std::function<double(std::int64_t step)>;

/// options.lr, in every step.
Schedule make_schedule(const Options& options);

}  // namespace lockstep::train
