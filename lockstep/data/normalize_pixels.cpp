#include "lockstep/data/normalize_pixels.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr int kChannels = 3, kPixels = 256;

void check_pixels(const at::Tensor& pixels, at::Device device) {
  if (pixels.defined() && pixels.scalar_type() == at::kByte && pixels.dim() >= 3 && pixels.device() == device &&
      (pixels.size(-3) == 1 || pixels.size(-3) == kChannels))
    return;
  std::ostringstream found;
  if (pixels.defined())
    found << pixels.scalar_type() << " " << pixels.sizes() << " on " << pixels.device();
  else
    found << "no tensor";
  found << ", uint8 [..., 1 or 3 channels, height, width] on " << device << " expected";
  throw UsageError("NormalizePixels: " + found.str());
}

}  // namespace

NormalizePixels::NormalizePixels(const NormalizeOptions& options, at::Device device) : layout_(options.layout) {
  if (options.type == PixelType::uint8)
    throw UsageError("NormalizePixels: a type of uint8, float32 or bfloat16 expected");
  const Normalize normalize(options);
  const at::Tensor numbers = at::empty({kChannels * kPixels}, at::TensorOptions().dtype(at::kFloat));
  const at::Tensor firsts = at::empty({kChannels}, at::TensorOptions().dtype(at::kInt));
  float* number = numbers.mutable_data_ptr<float>();
  for (int channel = 0; channel < kChannels; ++channel) {
    firsts.mutable_data_ptr<int>()[channel] = channel * kPixels;
    for (int pixel = 0; pixel < kPixels; ++pixel) *number++ = normalize.number(channel, pixel);
  }
  numbers_ = numbers.to(options.type == PixelType::float32 ? at::kFloat : at::kBFloat16).to(device);
  firsts_ = firsts.to(device);
}

at::Tensor NormalizePixels::operator()(const at::Tensor& pixels) const {
  check_pixels(pixels, numbers_.device());
  const at::NoGradGuard no_grad;
  const bool channels_last = layout_ == PixelLayout::channels_last;
  // In the order in which what comes out lies in memory.
  const at::Tensor ordered = channels_last ? pixels.movedim(-3, -1) : pixels;
  at::Tensor places = ordered.to(at::kInt);
  if (pixels.size(-3) == kChannels) places.add_(channels_last ? firsts_ : firsts_.view({kChannels, 1, 1}));
  const at::Tensor numbers = numbers_.index_select(0, places.flatten()).view(ordered.sizes());
  return channels_last ? numbers.movedim(-1, -3) : numbers;
}

}  // namespace lockstep::data
