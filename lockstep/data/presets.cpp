#include "lockstep/data/presets.h"

#include "lockstep/data/transforms/augment.h"
#include "lockstep/data/transforms/augmix.h"
#include "lockstep/data/transforms/crop.h"

namespace lockstep::data {
namespace {

const NormalizeOptions kMnist{.mean = {0.1307}, .std = {0.3081}};
const NormalizeOptions kCifar{.mean = {0.4914, 0.4822, 0.4465}, .std = {0.2470, 0.2435, 0.2616}};
const NormalizeOptions kImageNet{.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}};

// The reference trainer gives its policies the interpolation of the crop.
WarpOptions warp_of(const TrainPresetOptions& options) { return {.interpolation = options.interpolation}; }

PictureBatchOptions erased(const NormalizeOptions& normalize, const TrainPresetOptions& options) {
  PictureBatchOptions batch{.normalize = normalize};
  if (options.random_erase > 0) batch.erasing = RandomErasingOptions{.p = options.random_erase};
  return batch;
}

}  // namespace

Compose with_policy(Compose transforms, const TrainPresetOptions& options) {
  switch (options.auto_augment) {
    case AutoAugmentKind::none:
      return transforms;
    case AutoAugmentKind::imagenet:
      return std::move(transforms).then(AutoAugment(AutoAugmentPolicy::imagenet, warp_of(options)));
    case AutoAugmentKind::cifar10:
      return std::move(transforms).then(AutoAugment(AutoAugmentPolicy::cifar10, warp_of(options)));
    case AutoAugmentKind::svhn:
      return std::move(transforms).then(AutoAugment(AutoAugmentPolicy::svhn, warp_of(options)));
    case AutoAugmentKind::ra:
      return std::move(transforms).then(RandAugment({.magnitude = options.ra_magnitude, .warp = warp_of(options)}));
    case AutoAugmentKind::ta_wide:
      return std::move(transforms).then(TrivialAugmentWide(31, warp_of(options)));
    case AutoAugmentKind::augmix:
      return std::move(transforms).then(AugMix({.severity = options.augmix_severity, .warp = warp_of(options)}));
  }
  __builtin_unreachable();
}

Preparation to_tensor_preset() { return {}; }

Preparation mnist_preset() { return {{}, {.normalize = kMnist}}; }

Preparation cifar_train_preset(const TrainPresetOptions& options) {
  Compose crop = Compose().then(RandomCrop(32, {.padding = 4})).then(RandomHorizontalFlip());
  return {with_policy(std::move(crop), options), erased(kCifar, options)};
}

Preparation cifar_eval_preset() { return {{}, {.normalize = kCifar}}; }

Preparation imagenet_train_preset(const TrainPresetOptions& options) {
  Compose cropped = Compose()
                        .then(RandomResizedCrop(options.crop_size, {.interpolation = options.interpolation}))
                        .then(RandomHorizontalFlip());
  return {with_policy(std::move(cropped), options), erased(kImageNet, options)};
}

Preparation imagenet_eval_preset(const EvalPresetOptions& options) {
  return {Compose().then(Resize(options.resize_size, options.interpolation)).then(CenterCrop(options.crop_size)),
          {.normalize = kImageNet}};
}

}  // namespace lockstep::data
