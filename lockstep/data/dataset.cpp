#include "lockstep/data/dataset.h"

#include <ATen/ops/empty.h>

#include <array>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

// One float division, rounded once: the bits of `img.to(float).div(255)`.
constexpr std::array<float, 256> kToTensor = [] {
  std::array<float, 256> table{};
  for (int pixel = 0; pixel < 256; ++pixel) table[pixel] = float(pixel) / 255.0f;
  return table;
}();

}  // namespace

Batch make_batch(const ImageSet& set, std::span<const std::int64_t> indices) {
  std::vector<std::int64_t> shape = set.images.sizes().vec();
  shape[0] = std::int64_t(indices.size());
  Batch batch{at::empty(shape, at::kFloat), at::empty({shape[0]}, at::kLong)};
  const std::int64_t pixels = set.images.stride(0);
  const std::uint8_t* images = set.images.const_data_ptr<std::uint8_t>();
  const std::int64_t* labels = set.labels.const_data_ptr<std::int64_t>();
  float* data = batch.data.mutable_data_ptr<float>();
  std::int64_t* target = batch.target.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= set.size()) {
      throw UsageError("sample " + std::to_string(index) + " asked for, the set has " + std::to_string(set.size()));
    }
    const std::uint8_t* image = images + index * pixels;
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) *data++ = kToTensor[image[pixel]];
    *target++ = labels[index];
  }
  return batch;
}

}  // namespace lockstep::data
