#pragma once

// The built-in models by name.

#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/image_model.h"

namespace lockstep::models {

/// The names make_model knows: linear, mlp, mlp_dropout (p = 0.5), convnet, resnet18_cifar, whose stem is for pictures
/// of 32x32, and those of torchvision: resnet18 … resnet152, resnext50_32x4d, resnext101_32x8d, wide_resnet50_2,
/// wide_resnet101_2, vgg11 … vgg19_bn, alexnet, mobilenet_v2, densenet121, efficientnet_b0, vit_b_16.
std::vector<std::string> model_names();

/// What pictures a model takes.
struct PictureSizes {
  std::int64_t smallest = 1;  ///< least height and width
  std::int64_t multiple = 1;  ///< more than 1: only squares, of a side that is a multiple of it
  bool one_size = false;      ///< only those of the task that the model is made for
};

/// UsageError with the nearest valid name when `name` is unknown.
PictureSizes picture_sizes(const std::string& name);

/// UsageError that tells the size found and the wanted one when the model cannot take pictures of `task`.
void check_pictures(const std::string& name, const ImageTask& task);

/// A new model for `task`, its weights drawn from torch's default generator. UsageError when `name` is unknown or the
/// pictures are none for it, before anything is drawn.
std::shared_ptr<ImageModel> make_model(const std::string& name, const ImageTask& task = {});

}  // namespace lockstep::models
