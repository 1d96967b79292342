#pragma once

// Batches of pictures in one line: of a set, or of pictures that a program has as a tensor.

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>

#include "lockstep/data/picture_batches.h"
#include "lockstep/data/presets.h"

namespace lockstep::data {

/// The pictures of a set, prepared as one of the functions of presets.h says, or as is written here:
///
///   auto train = data::pictures(data::ImageFolder("photos/train"),
///                               {.transforms = data::Compose().then(data::RandomResizedCrop(224)),
///                                .batch = {.normalize = {.mean = {0.5}, .std = {0.5}}}});
///
/// UsageError as of PictureBatches, and when there is no set.
std::shared_ptr<const PictureBatches> pictures(std::shared_ptr<const PictureSet> set, Preparation preparation = {});

template <std::derived_from<PictureSet> Set>
std::shared_ptr<const PictureBatches> pictures(Set set, Preparation preparation = {}) {
  return pictures(std::shared_ptr<const PictureSet>(std::make_shared<Set>(std::move(set))), std::move(preparation));
}

/// A set that lies in memory as 8-bit pixels, in one line:
///
///   DataLoader loader(data::pictures(images, labels, 10, data::cifar_train_preset()), ddp.part(), {.batch_size = 64});
///
/// `images`: uint8 [N, height, width] or [N, channels, height, width] with 1 or 3 channels, 0 to 255, as MNIST and
/// CIFAR come. `labels`: integers [N] in 0 … classes−1. Both are copied. As it stands: pixels / 255, without
/// augmentation.
///
/// UsageError for other tensors. Transforms are Pillow's arithmetic on 8-bit pixels, so numbers cannot be augmented:
/// those go to data::tensors() as they are.
std::shared_ptr<const PictureBatches> pictures(const at::Tensor& images, const at::Tensor& labels, std::int64_t classes,
                                               Preparation preparation = {});

}  // namespace lockstep::data
