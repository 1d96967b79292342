#pragma once

// ToTensor and Normalize behind the way to the device, for batches that travel as bytes.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "lockstep/data/transforms/normalize.h"

namespace lockstep::data {

/// Makes (pixel / 255 - mean) / std of pictures whose pixels are bytes still (PixelType::uint8), on their device, which
/// so is sent a quarter of the bytes:
///
///   .batch = {.normalize = {.type = data::PixelType::uint8}}                 // of data::pictures()
///   const data::NormalizePixels normalize({.mean = {0.5}, .std = {0.25}}, device);
///   for (auto& batch : loader) ddp(normalize(batch.data));                   // a loader with .device
///
/// Numbers are looked up in Normalize's table: on every device the bits are those of pictures that were made on the
/// host with the same options. Thread-safe.
class NormalizePixels {
 public:
  /// `layout` and `type` are those of what comes out. UsageError as of Normalize, and for a type of uint8.
  NormalizePixels(const NormalizeOptions& options, at::Device device);

  /// Of uint8 [..., channels, height, width] on the device, with 1 or 3 channels; a new tensor of that shape, without
  /// a graph. UsageError for others.
  at::Tensor operator()(const at::Tensor& pixels) const;

 private:
  PixelLayout layout_;
  at::Tensor numbers_;  ///< [3 * 256]: the channels one behind the other
  at::Tensor firsts_;   ///< of the channels
};

}  // namespace lockstep::data
