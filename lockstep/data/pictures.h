#pragma once

// Pictures that a program has as a tensor.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "lockstep/data/picture_batches.h"
#include "lockstep/data/presets.h"

namespace lockstep::data {

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
