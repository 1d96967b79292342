#include "lockstep/train/input.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/cached_pictures.h"
#include "lockstep/data/digits.h"
#include "lockstep/data/presets.h"
#include "lockstep/data/readers/cifar.h"
#include "lockstep/data/readers/idx.h"
#include "lockstep/data/readers/image_folder.h"
#include "lockstep/data/readers/paths.h"
#include "lockstep/train/batch_plan.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using PictureSet = std::shared_ptr<const data::PictureSet>;

PictureSet held(data::MemoryPictures set) { return std::make_shared<data::MemoryPictures>(std::move(set)); }

// torchvision's reference trainer calls the second half val, the CIFAR folders test.
std::string test_folder(const std::string& path) {
  const fs::path val = fs::path(path) / "val", test = fs::path(path) / "test";
  if (data::is_folder(val)) return val.string();
  if (data::is_folder(test)) return test.string();
  throw UsageError("no folder 'val' or 'test' in '" + path + "': pictures to evaluate on, or --no-eval");
}

// Training and evaluation each may keep as much.
PictureSet cached(PictureSet set, const Options& options) {
  if (options.cache_images == 0) return set;
  return std::make_shared<data::CachedPictures>(std::move(set), std::size_t(options.cache_images) << 20);
}

data::ImageFolderOptions index_of(const Options& options, bool train) {
  if (options.index_cache.empty()) return {};
  return {.index_cache = (fs::path(options.index_cache) / (train ? "train.index" : "test.index")).string()};
}

PictureSet open_set(const Options& options, bool train) {
  const std::string& path = options.data_path;
  if (options.dataset == "mnist") return held(data::load_mnist(path, train));
  if (options.dataset == "fashion-mnist") return held(data::load_fashion_mnist(path, train));
  if (options.dataset == "cifar10") return held(data::load_cifar10(path, train));
  if (options.dataset == "cifar100") return held(data::load_cifar100(path, train));
  if (options.dataset == "cifar100-coarse") return held(data::load_cifar100(path, train, data::CifarLabels::coarse));
  if (options.dataset == "imagefolder") {
    const std::string folder = train ? (fs::path(path) / "train").string() : test_folder(path);
    return cached(std::make_shared<data::ImageFolder>(folder, index_of(options, train)), options);
  }
  return held(data::make_digits(train ? data::Split::train : data::Split::test));
}

data::Interpolation interpolation(const Options& options) {
  if (options.interpolation == "nearest") return data::Interpolation::nearest;
  if (options.interpolation == "bicubic") return data::Interpolation::bicubic;
  return data::Interpolation::bilinear;
}

data::AutoAugmentKind auto_augment(const Options& options) {
  if (options.auto_augment == "imagenet") return data::AutoAugmentKind::imagenet;
  if (options.auto_augment == "cifar10") return data::AutoAugmentKind::cifar10;
  if (options.auto_augment == "ra") return data::AutoAugmentKind::ra;
  if (options.auto_augment == "ta_wide") return data::AutoAugmentKind::ta_wide;
  return data::AutoAugmentKind::none;
}

data::Preparation train_preparation(const Options& options) {
  const data::TrainPresetOptions preset{.crop_size = options.train_crop_size,
                                        .interpolation = interpolation(options),
                                        .auto_augment = auto_augment(options),
                                        .random_erase = options.random_erase};
  if (options.transforms == "mnist") return data::mnist_preset();
  if (options.transforms == "cifar") return data::cifar_train_preset(preset);
  if (options.transforms == "imagenet") return data::imagenet_train_preset(preset);
  return data::to_tensor_preset();
}

data::Preparation test_preparation(const Options& options) {
  if (options.transforms == "mnist") return data::mnist_preset();
  if (options.transforms == "cifar") return data::cifar_eval_preset();
  if (options.transforms == "imagenet")
    return data::imagenet_eval_preset({.resize_size = options.val_resize_size,
                                       .crop_size = options.val_crop_size,
                                       .interpolation = interpolation(options)});
  return data::to_tensor_preset();
}

std::shared_ptr<const data::PictureBatches> batches(PictureSet set, data::Preparation preparation,
                                                    const Options& options) {
  preparation.batch.seed = std::uint64_t(options.seed);
  return std::make_shared<data::PictureBatches>(std::move(set), std::move(preparation.transforms), preparation.batch);
}

// The first picture tells what all must be like.
models::ImageTask task_of(const data::PictureBatches& batches) {
  const std::int64_t first[] = {0};
  const at::Tensor picture = batches.make(0, first).data;
  return {picture.size(1), picture.size(2), picture.size(3), std::int64_t(batches.set().classes().size())};
}

// Of the sets whose pictures are known without reading them.
models::ImageTask known_task(const Options& options) {
  const bool cifar = options.dataset.starts_with("cifar");
  models::ImageTask task{.channels = cifar ? 3 : 1, .height = cifar ? 32 : 28, .classes = 10};
  if (options.dataset == "cifar100") task.classes = 100;
  if (options.dataset == "cifar100-coarse") task.classes = 20;
  if (options.transforms == "imagenet") task.height = options.train_crop_size;
  task.width = task.height;
  return task;
}

std::string shape_text(const models::ImageTask& task) {
  return std::to_string(task.channels) + "x" + std::to_string(task.height) + "x" + std::to_string(task.width);
}

// A residual net averages over whatever places there are; the others are made for one size.
void check_together(const data::PictureBatches& train, const data::PictureBatches& test, const Options& options) {
  if (train.set().classes() != test.set().classes())
    throw UsageError("'" + options.data_path + "': the classes to evaluate on are " + base::join(test.set().classes()) +
                     ", those to train on " + base::join(train.set().classes()));
  models::ImageTask train_task = task_of(train), test_task = task_of(test);
  if (options.model.starts_with("resnet")) train_task.height = test_task.height, train_task.width = test_task.width;
  if (train_task != test_task)
    throw UsageError("--model " + options.model + " trains on pictures of " + shape_text(train_task) +
                     " and cannot be evaluated on " + shape_text(test_task) + ": --train-crop-size and " +
                     "--val-crop-size must be equal");
}

}  // namespace

Input make_input(const Options& options) {
  if (!reads_data(options) && options.dataset != "imagefolder") return {.task = known_task(options)};
  const auto train = batches(open_set(options, true), train_preparation(options), options);
  Input input{.train = train,
              .mix = data::mixup_cutmix(options.mixup_alpha, options.cutmix_alpha),
              .task = task_of(*train),
              .train_set = train->set().fingerprint()};
  if (!options.eval || !reads_data(options)) return input;
  const auto test = batches(open_set(options, false), test_preparation(options), options);
  check_together(*train, *test, options);
  input.test = test;
  input.test_set = test->set().fingerprint();
  return input;
}

}  // namespace lockstep::train
