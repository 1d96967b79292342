#pragma once

// Several replicas of a model within one process (--parallel dp).

#include <c10/core/Device.h>

#include <memory>

#include "lockstep/models/image_model.h"
#include "lockstep/train/additions.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// `model`, which is on `device`, with its parameters, buffers and layers under their names, whose forward cuts the
/// batch for options.replicas replicas there (parallel/data_parallel.h), or with options.device "cuda" for one on each
/// of the first GPUs. To the engine it is a model as any other. Replicas are made as `model` was; where one draws
/// random numbers, their forward passes are one after the other, so that a run can be repeated.
std::shared_ptr<models::ImageModel> replicated(const std::shared_ptr<models::ImageModel>& model, const Options& options,
                                               const models::ImageTask& task, const Additions& additions,
                                               at::Device device = at::kCPU);

/// Whether a forward pass in training mode may draw random numbers: a Dropout layer does, and who knows of a model of
/// the program's own. The built-in models that draw in another way have a Dropout layer, too.
bool may_draw(const Options& options, const models::ImageModel& model);

}  // namespace lockstep::train
