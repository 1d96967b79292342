#include "lockstep/data/picture_batches.h"

#include <ATen/ops/empty.h>

#include <new>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

std::string shape_of(const Picture& picture) {
  return to_string(picture.size()) + " with " + std::to_string(picture.channels()) +
         (picture.channels() == 1 ? " channel" : " channels");
}

}  // namespace

PictureBatches::PictureBatches(std::shared_ptr<const PictureSet> set, Compose transforms,
                               const PictureBatchOptions& options)
    : set_(std::move(set)), transforms_(std::move(transforms)), options_(options), normalize_(options.normalize) {
  if (options.erasing) erasing_.emplace(*options.erasing);
}

SampleKey PictureBatches::key(std::uint64_t epoch, std::int64_t index) const {
  return {.seed = options_.seed, .epoch = epoch, .index = std::uint64_t(index)};
}

std::string PictureBatches::name_of(std::int64_t index) const {
  const std::string file = set_->file_of(index);
  return "sample " + std::to_string(index) + (file.empty() ? "" : " ('" + file + "')");
}

// Decoders name the file, transforms know of none.
std::string PictureBatches::told(std::int64_t index, const std::string& error) const {
  const std::string file = set_->file_of(index);
  const bool names_file = !file.empty() && error.find(file) != std::string::npos;
  return (names_file ? "sample " + std::to_string(index) : name_of(index)) + ": " + error;
}

Sample PictureBatches::prepared(const SampleKey& key) const {
  try {
    Sample sample = set_->get(std::int64_t(key.index));
    transforms_.apply(sample.picture, key);
    sample.picture.window();  // decoded now, for its error to be this sample's
    return sample;
  } catch (const UsageError& error) {
    throw UsageError(told(std::int64_t(key.index), error.what()));
  } catch (const std::bad_alloc&) {
    throw Error(told(std::int64_t(key.index), "not enough memory for it"));
  } catch (const std::exception& error) {
    throw Error(told(std::int64_t(key.index), error.what()));
  }
}

void PictureBatches::write(const Picture& picture, const SampleKey& key, void* place) const {
  const Slot slot = normalize_.slot(place, picture.size(), picture.channels());
  normalize_.write(picture, slot);
  if (!erasing_) return;
  base::RandomStream random = transform_stream(key, transforms_.size());
  erasing_->apply(slot, random);
}

at::Tensor PictureBatches::empty_like(const Picture& first, std::int64_t count) const {
  const auto type = options_.normalize.type == PixelType::float32 ? at::kFloat : at::kBFloat16;
  const auto format =
      options_.normalize.layout == PixelLayout::planes ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
  return memory_.empty({count, first.channels(), first.size().height, first.size().width}, type, format);
}

Batch PictureBatches::make(std::uint64_t epoch, std::span<const std::int64_t> indices) const {
  const auto count = std::int64_t(indices.size());
  Batch batch{{}, at::empty({count}, at::kLong)};
  if (indices.empty()) {
    batch.data = at::empty({0}, at::kFloat);
    return batch;
  }
  Picture first;
  char* slot = nullptr;
  std::int64_t* target = batch.target.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    const Sample sample = prepared(key(epoch, index));
    if (slot == nullptr) {
      first = sample.picture;
      batch.data = empty_like(first, count);
      slot = static_cast<char*>(batch.data.mutable_data_ptr());
    }
    if (sample.picture.size() != first.size() || sample.picture.channels() != first.channels()) {
      throw UsageError(name_of(index) + " is " + shape_of(sample.picture) + ", " + name_of(indices[0]) +
                       " of the batch " + shape_of(first) + ": a transform to one size is missing");
    }
    write(sample.picture, key(epoch, index), slot);
    slot += normalize_.slot(slot, first.size(), first.channels()).bytes();
    *target++ = sample.label;
  }
  return batch;
}

}  // namespace lockstep::data
