#include "benchmarks/input/input_case.h"

#include <filesystem>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/data/cached_pictures.h"
#include "lockstep/data/readers/idx.h"
#include "lockstep/data/readers/image_folder.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/geometry.h"

namespace lockstep::bench {
namespace {

using data::MemoryPictures;

// Training pictures as large as these are photographs.
constexpr int kSmallSide = 64;

bool holds_mnist(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const char* inner : {"", "MNIST/raw"}) {
    for (const char* end : {"", ".gz"}) {
      if (fs::exists(fs::path(path) / inner / (std::string("train-images-idx3-ubyte") + end), ignored)) return true;
    }
  }
  return false;
}

// Pixels that nobody can guess, so no cache or branch predictor has it easier than with photographs.
std::shared_ptr<const data::PictureSet> made_up_pictures(int count) {
  MemoryPictures::Content content{.size = {32, 32}, .classes = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}};
  base::RandomStream random(0, 0, 0);
  content.pixels.resize(std::size_t(count) * 32 * 32 * 3);
  for (std::uint8_t& pixel : content.pixels) pixel = std::uint8_t(random.next());
  for (int i = 0; i < count; ++i) content.labels.push_back(i % 10);
  return std::make_shared<MemoryPictures>(std::move(content));
}

std::shared_ptr<const data::PictureSet> decoded(std::shared_ptr<const data::PictureSet> set) {
  auto all = std::make_shared<data::CachedPictures>(std::move(set), std::numeric_limits<std::size_t>::max());
  for (std::int64_t i = 0; i < all->size(); ++i) all->get(i);
  return all;
}

bool of_one_size(const data::PictureSet& set) {
  for (std::int64_t i = 1; i < set.size(); ++i) {
    if (set.get(i).picture.size() != set.get(0).picture.size()) return false;
  }
  return true;
}

std::shared_ptr<const data::PictureSet> as_cifar(const data::PictureSet& set) {
  MemoryPictures::Content content{.size = set.get(0).picture.size(), .classes = set.classes()};
  for (std::int64_t i = 0; i < set.size(); ++i) {
    data::Sample sample = set.get(i);
    const data::ImageView& view = sample.picture.pixels();
    for (int y = 0; y < view.height; ++y) {
      content.pixels.insert(content.pixels.end(), view.row(y),
                            view.row(y) + std::ptrdiff_t(view.width) * view.channels);
    }
    content.labels.push_back(sample.label);
  }
  return std::make_shared<MemoryPictures>(std::move(content));
}

InputCase open_set(const InputOptions& options) {
  if (options.data_path.empty()) {
    return {.kind = "memory", .about = "pictures made up for the measurement", .set = made_up_pictures(10'000)};
  }
  if (holds_mnist(options.data_path))
    return {.kind = "mnist",
            .about = "MNIST",
            .set = std::make_shared<MemoryPictures>(data::load_mnist(options.data_path, data::Split::train))};
  auto folder = std::make_shared<const data::ImageFolder>(options.data_path);
  if (!options.in_memory) return {.kind = "folder", .about = "files, decoded when read", .set = std::move(folder)};
  const auto all = decoded(std::move(folder));
  if (of_one_size(*all)) return {.kind = "memory", .about = "decoded before", .set = as_cifar(*all)};
  return {.kind = "folder", .about = "decoded before; torchvision's own sets have no cache and decode", .set = all};
}

}  // namespace

InputCase open_case(const InputOptions& options) {
  InputCase input = open_set(options);
  const data::Size size = input.set->get(0).picture.size();
  const bool small = size.height <= kSmallSide && size.width <= kSmallSide;
  input.transforms = !options.transforms.empty() ? options.transforms
                     : input.kind == "mnist"     ? "mnist"
                     : small                     ? "cifar"
                                                 : "photos";
  transforms_of(input.transforms);  // complains about a name that it does not know
  if (input.transforms == "mnist") {
    input.mean = {0.1307}, input.std = {0.3081};
  } else if (input.transforms == "cifar") {
    input.mean = {0.4914, 0.4822, 0.4465}, input.std = {0.2470, 0.2435, 0.2616};
  } else {
    input.mean = {0.485, 0.456, 0.406}, input.std = {0.229, 0.224, 0.225};
  }
  input.about = std::to_string(input.set->size()) + " pictures, " + input.about;
  return input;
}

data::Compose transforms_of(const std::string& name) {
  if (name == "mnist") return {};
  if (name == "cifar") {
    return data::Compose().then(data::RandomCrop(32, {.padding = 4})).then(data::RandomHorizontalFlip());
  }
  if (name == "photos") {
    return data::Compose().then(data::RandomResizedCrop(224)).then(data::RandomHorizontalFlip());
  }
  throw UsageError("bench input: transforms '" + name + "': cifar, photos or mnist expected");
}

std::shared_ptr<const data::PictureBatches> batches_of(const InputCase& input) {
  return std::make_shared<data::PictureBatches>(
      input.set, transforms_of(input.transforms),
      data::PictureBatchOptions{.normalize = {.mean = input.mean, .std = input.std}});
}

}  // namespace lockstep::bench
