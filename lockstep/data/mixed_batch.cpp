#include "lockstep/data/mixed_batch.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

void require(bool right, const std::string& found, const char* expected) {
  if (!right) throw UsageError("mix_batch: " + found + ", " + expected + " expected");
}

std::string text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  std::ostringstream out;
  out << tensor.scalar_type() << " " << tensor.sizes();
  return out.str();
}

void check(const Batch& batch, std::int64_t classes, int shards) {
  const at::Tensor &data = batch.data, &target = batch.target;
  const bool pictures = data.defined() && data.dim() == 4 &&
                        (data.scalar_type() == at::kFloat || data.scalar_type() == at::kBFloat16) &&
                        (data.is_contiguous() || data.is_contiguous(at::MemoryFormat::ChannelsLast));
  require(pictures, text(data), "pictures [B, channels, height, width] of float32 or bfloat16 without gaps");
  const bool labels = target.defined() && target.scalar_type() == at::kLong && target.dim() == 1 &&
                      target.size(0) == data.size(0) && target.is_contiguous();
  require(labels, text(target), "labels int64 [B]");
  require(shards >= 1 && data.size(0) % shards == 0,
          std::to_string(data.size(0)) + " samples in " + std::to_string(shards) + " shards", "equal parts");
  const std::int64_t* label = target.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < target.size(0); ++i) {
    require(label[i] >= 0 && label[i] < classes, "label " + std::to_string(label[i]),
            ("0 to " + std::to_string(classes - 1)).c_str());
  }
}

Slots slots_of(const at::Tensor& data) {
  const Slot first{.data = data.mutable_data_ptr(),
                   .size = {int(data.size(2)), int(data.size(3))},
                   .channels = int(data.size(1)),
                   .layout = data.is_contiguous() ? PixelLayout::planes : PixelLayout::channels_last,
                   .type = data.scalar_type() == at::kFloat ? PixelType::float32 : PixelType::bfloat16};
  return {first, data.size(0)};
}

}  // namespace

void mix_batch(Batch& batch, const BatchMix& mix, std::int64_t classes, const BatchKey& key, int shards) {
  check(batch, classes, shards);
  Slots samples = slots_of(batch.data);
  samples.count /= shards;
  at::Tensor targets = at::empty({batch.target.size(0), classes}, at::kFloat);
  const std::int64_t* labels = batch.target.const_data_ptr<std::int64_t>();
  float* soft = targets.mutable_data_ptr<float>();
  BatchKey place = key;
  for (int shard = 0; shard < shards; ++shard, ++place.shard) {
    base::RandomStream random = batch_stream(place);
    const double lambda = mix.apply(samples, random);
    mix_labels({labels, std::size_t(samples.count)}, lambda, classes, soft);
    labels += samples.count;
    soft += samples.count * classes;
    samples.first.data =
        static_cast<std::byte*>(samples.first.data) + samples.first.bytes() * std::size_t(samples.count);
  }
  batch.target = std::move(targets);
}

}  // namespace lockstep::data
