#pragma once

// How the tutorials and torchvision's reference trainer prepare MNIST, CIFAR and ImageNet pictures.

#include "lockstep/data/picture_batches.h"
#include "lockstep/data/transforms/geometry.h"

namespace lockstep::data {

/// What PictureBatches needs beside a set.
struct Preparation {
  Compose transforms = {};
  PictureBatchOptions batch = {};
};

/// ToTensor alone: pixel / 255.
Preparation to_tensor_preset();

/// ToTensor, Normalize(0.1307, 0.3081); for training and evaluation.
Preparation mnist_preset();

/// The policy that torchvision's reference trainer knows by the same name.
enum class AutoAugmentKind { none, imagenet, cifar10, svhn, ra, ta_wide, augmix };

struct TrainPresetOptions {
  int crop_size = 224;  ///< of the ImageNet preset
  Interpolation interpolation = Interpolation::bilinear;
  AutoAugmentKind auto_augment = AutoAugmentKind::none;
  int ra_magnitude = 9;     ///< of ra, 0 … 30
  int augmix_severity = 3;  ///< of augmix, 1 … 10
  double random_erase = 0;  ///< probability
};

/// `transforms` and, behind them, the policy of the options.
Compose with_policy(Compose transforms, const TrainPresetOptions& options);

/// RandomCrop(32, padding 4), RandomHorizontalFlip, the policy, ToTensor, Normalize with the mean and
/// standard deviation of CIFAR-10's training pixels, RandomErasing.
Preparation cifar_train_preset(const TrainPresetOptions& options = {});
/// ToTensor and the same Normalize.
Preparation cifar_eval_preset();

/// ClassificationPresetTrain: RandomResizedCrop, RandomHorizontalFlip, the policy, ToTensor, Normalize
/// with ImageNet's numbers, RandomErasing.
Preparation imagenet_train_preset(const TrainPresetOptions& options = {});

struct EvalPresetOptions {
  int resize_size = 256;  ///< of the smaller edge
  int crop_size = 224;
  Interpolation interpolation = Interpolation::bilinear;
};

/// ClassificationPresetEval: Resize, CenterCrop, ToTensor, Normalize with ImageNet's numbers.
Preparation imagenet_eval_preset(const EvalPresetOptions& options = {});

}  // namespace lockstep::data
