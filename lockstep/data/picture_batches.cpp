#include "lockstep/data/picture_batches.h"

#include <ATen/ops/empty.h>

#include <new>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

// So many samples before its turn the set is told of one.
constexpr std::size_t kExpected = 4;

// The set whose pixels lie in memory, where a sample need not become a picture to be put into a batch: it is only
// placed.
const MemoryPictures* stored(const PictureSet& set, const Compose& transforms, const PictureBatchOptions& options) {
  const bool whole_pictures = !options.crops && !options.erasing;
  return whole_pictures && transforms.only_places() ? dynamic_cast<const MemoryPictures*>(&set) : nullptr;
}

at::ScalarType scalar_type(PixelType type) {
  if (type == PixelType::uint8) return at::kByte;
  return type == PixelType::float32 ? at::kFloat : at::kBFloat16;
}

std::string shape_of(const Picture& picture) {
  return to_string(picture.size()) + " with " + std::to_string(picture.channels()) +
         (picture.channels() == 1 ? " channel" : " channels");
}

}  // namespace

PictureBatches::PictureBatches(std::shared_ptr<const PictureSet> set, Compose transforms,
                               const PictureBatchOptions& options)
    : set_(std::move(set)),
      transforms_(std::move(transforms)),
      options_(options),
      normalize_(options.normalize),
      stored_(stored(*set_, transforms_, options)),
      memory_(options.pin_memory) {
  if (options.erasing && options.normalize.type == PixelType::uint8)
    throw UsageError("picture batches: RandomErasing writes normalised numbers, and pictures of uint8 have none");
  if (options.erasing) erasing_.emplace(*options.erasing);
  if (options.repetitions < 1)
    throw UsageError("picture batches: " + std::to_string(options.repetitions) + " repetitions, at least 1 expected");
}

SampleKey PictureBatches::key(std::uint64_t epoch, std::int64_t index) const {
  return {.seed = options_.seed, .epoch = epoch, .index = std::uint64_t(index)};
}

// What is no repetition stays as it is, for the set to refuse.
std::int64_t PictureBatches::sample_of(std::int64_t index) const {
  const std::int64_t size = set_->size();
  return index >= size && size > 0 && index / size < options_.repetitions ? index % size : index;
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

// What `prepare` makes of sample `index`; what it throws names the sample.
template <class Prepare>
auto PictureBatches::named(std::int64_t index, Prepare&& prepare) const {
  try {
    return prepare();
  } catch (const UsageError& error) {
    throw UsageError(told(index, error.what()));
  } catch (const std::bad_alloc&) {
    throw Error(told(index, "not enough memory for it"));
  } catch (const std::exception& error) {
    throw Error(told(index, error.what()));
  }
}

PictureBatches::Views PictureBatches::prepared(const SampleKey& key) const {
  const std::int64_t index = sample_of(std::int64_t(key.index));
  return named(index, [&]() -> Views {
    Sample sample = set_->get(index);
    transforms_.apply(sample.picture, key);
    sample.picture.window();  // decoded now, for its error to be this sample's
    if (options_.crops) return {options_.crops->apply(std::move(sample.picture)), sample.label};
    return {{std::move(sample.picture)}, sample.label};
  });
}

void PictureBatches::write(const Views& sample, const SampleKey& key, char* place) const {
  base::RandomStream random = transform_stream(key, transforms_.size());
  for (const Picture& picture : sample.pictures) {
    const Slot slot = normalize_.slot(place, picture.size(), picture.channels());
    normalize_.write(picture, slot);
    if (erasing_) erasing_->apply(slot, random);
    place += slot.bytes();
  }
}

at::Tensor PictureBatches::empty(std::int64_t count, int channels, Size size) const {
  const at::ScalarType type = scalar_type(options_.normalize.type);
  const auto format =
      options_.normalize.layout == PixelLayout::planes ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
  const auto [height, width] = size;
  if (!options_.crops) return memory_.empty({count, channels, height, width}, type, format);
  const std::int64_t crops = options_.crops->count();
  const at::Tensor together = memory_.empty({count * crops, channels, height, width}, type, format);
  return together.view({count, crops, channels, height, width});
}

Batch PictureBatches::make(std::uint64_t epoch, std::span<const std::int64_t> indices) const {
  if (indices.empty()) return {at::empty({0}, at::kFloat), at::empty({0}, at::kLong)};
  return stored_ != nullptr ? placed(epoch, indices) : made_of_samples(epoch, indices);
}

// All of one size, for that of the set is.
Batch PictureBatches::placed(std::uint64_t epoch, std::span<const std::int64_t> indices) const {
  const MemoryPictures::Content& content = stored_->content();
  Batch batch{{}, at::empty({std::int64_t(indices.size())}, at::kLong)};
  std::int64_t* target = batch.target.mutable_data_ptr<std::int64_t>();
  char* place = nullptr;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (i + kExpected < indices.size()) stored_->expect(sample_of(indices[i + kExpected]));
    const std::int64_t index = sample_of(indices[i]);
    const Placement placement = named(index, [&] {
      check_index(index, stored_->size());
      return transforms_.place(content.size, key(epoch, indices[i]));
    });
    if (place == nullptr) {
      batch.data = empty(std::int64_t(indices.size()), content.channels, placement.box.size);
      place = static_cast<char*>(batch.data.mutable_data_ptr());
    }
    const Slot slot = normalize_.slot(place, placement.box.size, content.channels);
    named(index, [&] { normalize_.write(stored_->pixels(index), placement, slot); });
    place += slot.bytes();
    *target++ = content.labels[std::size_t(index)];
  }
  return batch;
}

Batch PictureBatches::made_of_samples(std::uint64_t epoch, std::span<const std::int64_t> indices) const {
  const auto count = std::int64_t(indices.size());
  Batch batch{{}, at::empty({count}, at::kLong)};
  Picture first;
  char* place = nullptr;
  std::size_t bytes = 0;
  std::int64_t* target = batch.target.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (i + kExpected < indices.size()) set_->expect(sample_of(indices[i + kExpected]));
    const std::int64_t index = indices[i];
    const Views sample = prepared(key(epoch, index));
    const Picture& picture = sample.pictures.front();
    if (place == nullptr) {
      first = picture;
      batch.data = empty(count, first.channels(), first.size());
      place = static_cast<char*>(batch.data.mutable_data_ptr());
      bytes = sample.pictures.size() * normalize_.slot(place, first.size(), first.channels()).bytes();
    }
    if (picture.size() != first.size() || picture.channels() != first.channels()) {
      throw UsageError(name_of(sample_of(index)) + " is " + shape_of(picture) + ", " + name_of(sample_of(indices[0])) +
                       " of the batch " + shape_of(first) + ": a transform to one size is missing");
    }
    write(sample, key(epoch, index), place);
    place += bytes;
    *target++ = sample.label;
  }
  return batch;
}

}  // namespace lockstep::data
