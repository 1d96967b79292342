#pragma once

// The steps of --transforms, where it is a list, as transforms of pictures.

#include "lockstep/data/presets.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// How pictures are prepared by options.transforms, a list (options_transforms.h): all steps to train on them, those
/// that draw no random numbers to evaluate.
data::Preparation listed_transforms(const Options& options, bool training);

/// What the options say of the presets to train on, and their interpolation.
data::TrainPresetOptions train_preset(const Options& options);
data::Interpolation interpolation_of(const Options& options);

}  // namespace lockstep::train
