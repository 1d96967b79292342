#include "lockstep/train/input.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/stop_on.h"
#include "lockstep/base/text.h"
#include "lockstep/data/cached_pictures.h"
#include "lockstep/data/presets.h"
#include "lockstep/data/readers/annotated_pictures.h"
#include "lockstep/data/readers/image_folder.h"
#include "lockstep/data/readers/load_set.h"
#include "lockstep/data/samplers/random.h"
#include "lockstep/data/samplers/repeated.h"
#include "lockstep/data/samplers/sliced.h"
#include "lockstep/data/sets/known_sets.h"
#include "lockstep/data/split.h"
#include "lockstep/data/synthetic.h"
#include "lockstep/models/registry.h"
#include "lockstep/train/batch_plan.h"
#include "lockstep/train/checked_labels.h"
#include "lockstep/train/evaluation.h"
#include "lockstep/train/number_input.h"
#include "lockstep/train/options_head.h"
#include "lockstep/train/options_transforms.h"
#include "lockstep/train/own_input.h"
#include "lockstep/train/own_names.h"
#include "lockstep/train/parts.h"
#include "lockstep/train/transform_list.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using data::Split;
using PictureSet = std::shared_ptr<const data::PictureSet>;

constexpr int kPrefetchFactor = 2;  // as Python's DataLoader

// Training and evaluation each may keep as much.
PictureSet cached(PictureSet set, const Options& options) {
  if (options.cache_images == 0) return set;
  return std::make_shared<data::CachedPictures>(std::move(set), std::size_t(options.cache_images) << 20);
}

// The folder is made before minutes go into looking at the pictures.
data::ImageFolderOptions index_of(const Options& options, Split split) {
  if (options.index_cache.empty()) return {};
  const char* file = split == Split::train ? "train.index" : "test.index";
  std::error_code error;
  fs::create_directories(options.index_cache, error);
  if (error)
    throw UsageError("--index-cache '" + base::shown(options.index_cache) + "': cannot be created: " + error.message());
  return {.index_cache = (fs::path(options.index_cache) / file).string()};
}

PictureSet open_folders(const Options& options, Split split) {
  const std::string folder = split == Split::train ? train_part(options) : val_part(options);
  return cached(std::make_shared<data::ImageFolder>(folder, index_of(options, split)), options);
}

// What the labels of the other part mean is said by the one to train on.
PictureSet open_annotated(const Options& options, Split split) {
  auto train = std::make_shared<data::AnnotatedPictures>(train_part(options, ".csv"));
  if (split == Split::train) return cached(std::move(train), options);
  return cached(std::make_shared<data::AnnotatedPictures>(val_part(options, ".csv"), train->classes()), options);
}

// Noise in the shape of the set's pictures; those of files of their own have what ImageNet has.
PictureSet made_up_set(const data::KnownSet& set, const Options& options, Split split) {
  constexpr std::int64_t kTrain = 10'000, kTest = 1'000, kFolderClasses = 1000, kFolderSide = 256;
  // As many as the model of the options is made for.
  const std::int64_t folder_classes = options.head.empty() ? kFolderClasses : head_layers(options.head).back().outputs;
  const data::SetTask& task = set.task;
  const bool folders = data::has_named_parts(set);
  data::SyntheticOptions made{
      .size = split == Split::train ? kTrain : kTest,
      .image_size = {int(folders ? kFolderSide : task.height), int(folders ? kFolderSide : task.width)},
      .channels = int(task.channels),
      .classes = int(folders ? folder_classes : task.classes)};
  made.seed = 2 * std::uint64_t(options.seed) + (split == Split::train ? 0 : 1);
  return std::make_shared<data::SyntheticPictures>(made);
}

PictureSet open_own(const Options& options, const OwnSet& own, Split split) {
  PictureSet set = own.pictures(opening_of(options, split));
  if (!set || set->size() < 1 || set->classes().empty())
    throw UsageError("--dataset " + own.name + ": the part to " + (split == Split::train ? "train" : "evaluate") +
                     " on has no " + (!set || set->size() < 1 ? "pictures" : "classes"));
  data::check_class_names(set->classes(), "--dataset " + own.name);
  return set;
}

PictureSet open_set(const Options& options, Split split, const Additions& additions) {
  if (const OwnSet* own = find_own_set(additions, options.dataset)) return open_own(options, *own, split);
  const data::KnownSet& set = set_of(options);
  if (options.synthetic) return made_up_set(set, options, split);
  if (set.files == data::SetFiles::class_folders) return open_folders(options, split);
  if (set.files == data::SetFiles::annotated) return open_annotated(options, split);
  return std::make_shared<data::MemoryPictures>(data::load_set(set, options.data_path, split));
}

data::EvalPresetOptions eval_preset(const Options& options) {
  return {.resize_size = options.val_resize_size,
          .crop_size = options.val_crop_size,
          .interpolation = interpolation_of(options)};
}

// How pictures are prepared, by the name of the transforms.
struct NamedTransforms {
  data::Preparation (*train)(const Options& options);
  data::Preparation (*test)(const Options& options);
};

const NamedTransforms& named_transforms(const Options& options) {
  constexpr auto kPlain = [](const Options&) { return data::to_tensor_preset(); };
  constexpr auto kMnist = [](const Options&) { return data::mnist_preset(); };
  static const std::map<std::string, NamedTransforms> all = {
      {"none", {kPlain, kPlain}},
      {"mnist", {kMnist, kMnist}},
      {"cifar",
       {[](const Options& o) { return data::cifar_train_preset(train_preset(o)); },
        [](const Options&) { return data::cifar_eval_preset(); }}},
      {"imagenet",
       {[](const Options& o) { return data::imagenet_train_preset(train_preset(o)); },
        [](const Options& o) { return data::imagenet_eval_preset(eval_preset(o)); }}},
  };
  return all.at(options.transforms);
}

data::Preparation preparation_of(const Options& options, Split split) {
  if (is_transform_list(options.transforms)) return listed_transforms(options, split == Split::train);
  const NamedTransforms& named = named_transforms(options);
  return split == Split::train ? named.train(options) : named.test(options);
}

std::shared_ptr<const data::PictureBatches> batches(PictureSet set, const Options& options, Split split) {
  data::Preparation preparation = preparation_of(options, split);
  preparation.batch.seed = std::uint64_t(options.seed);
  if (split == Split::train && options.ra_sampler) preparation.batch.repetitions = options.ra_reps;
  preparation.batch.pin_memory = split == Split::train && options.device.starts_with("cuda");
  return std::make_shared<data::PictureBatches>(std::move(set), std::move(preparation.transforms), preparation.batch);
}

// Of the sets whose pictures are known without reading them.
models::ImageTask known_task(const Options& options) {
  const auto [channels, height, width, classes] = set_of(options).task;
  models::ImageTask task{.channels = channels, .height = height, .width = width, .classes = classes};
  if (options.transforms == "imagenet") task.height = task.width = options.train_crop_size;
  return task;
}

std::string shape_text(const models::ImageTask& task) {
  return std::to_string(task.channels) + "x" + std::to_string(task.height) + "x" + std::to_string(task.width);
}

// Most nets average over whatever places there are; some are made for one size.
void check_together(const data::PictureBatches& train, const data::PictureBatches& test, const Options& options) {
  if (train.set().classes() != test.set().classes())
    throw UsageError("'" + options.data_path + "': the classes to evaluate on are " + base::join(test.set().classes()) +
                     ", those to train on " + base::join(train.set().classes()));
  models::ImageTask train_task = task_of(train), test_task = task_of(test);
  if (is_own_model(options)) return;
  models::check_pictures(options.model, train_task);
  models::check_pictures(options.model, test_task);
  if (!models::picture_sizes(options.model).one_size)
    train_task.height = test_task.height, train_task.width = test_task.width;
  if (train_task != test_task)
    throw UsageError("--model " + options.model + " trains on pictures of " + shape_text(train_task) +
                     " and cannot be evaluated on " + shape_text(test_task) + ": --train-crop-size and " +
                     "--val-crop-size must be equal");
}

// The first so many samples of a set.
class FirstSamples final : public data::Batches {
 public:
  FirstSamples(std::shared_ptr<const data::Batches> all, std::int64_t size)
      : all_(std::move(all)), size_(std::min(size, all_->size())) {}
  std::int64_t size() const override { return size_; }
  data::Batch make(std::uint64_t epoch, std::span<const std::int64_t> indices) const override {
    return all_->make(epoch, indices);
  }

 private:
  std::shared_ptr<const data::Batches> all_;
  std::int64_t size_;
};

}  // namespace

std::shared_ptr<const data::PictureBatches> make_test_batches(const Options& options, const Additions& additions) {
  return batches(open_set(options, Split::test, additions), options, Split::test);
}

models::ImageTask task_of(const data::PictureBatches& batches) {
  const std::int64_t first[] = {0};
  const at::Tensor picture = batches.make(0, first).data;
  return {picture.size(1), picture.size(2), picture.size(3), std::int64_t(batches.set().classes().size())};
}

namespace {

Input make_picture_input(const Options& options, const Additions& additions, bool evaluates) {
  const auto train = batches(open_set(options, Split::train, additions), options, Split::train);
  Input input{.train = train,
              .mix = data::mixup_cutmix(options.mixup_alpha, options.cutmix_alpha),
              .task = task_of(*train),
              .train_set = train->set().fingerprint()};
  // Those of the other sets are checked as they are read.
  if (find_own_set(additions, options.dataset)) input.train = with_checked_labels(input.train, input.task.classes);
  if (!evaluates) return input;
  const auto test = make_test_batches(options, additions);
  check_together(*train, *test, options);
  input.test = test;
  input.test_pictures = {test, &test->set()};
  input.test_set = test->set().fingerprint();
  return input;
}

Input make_whole_input(const Options& options, const Additions& additions, bool evaluates) {
  const data::KnownSet& set = set_of(options);
  if (const OwnSet* own = find_own_set(additions, options.dataset); own != nullptr && own->samples)
    return make_own_input(options, *own, evaluates);
  if (data::holds_numbers(set)) return make_number_input(options, evaluates);
  return make_picture_input(options, additions, evaluates);
}

// Shuffled, with the repetitions of its reference trainer where they are asked for.
std::shared_ptr<const data::Sampler> sample_order(const Options& options, std::int64_t samples, int shards) {
  if (options.slice_rows)
    return std::make_shared<data::SlicedSampler>(
        samples, data::SlicedSamplerOptions{.slices = shards, .seed = std::uint64_t(options.seed)});
  const data::RandomSamplerOptions shuffled{.seed = std::uint64_t(options.seed)};
  auto order = std::make_shared<data::RandomSampler>(samples, shuffled);
  if (!options.ra_sampler) return order;
  return std::make_shared<data::RepeatedSampler>(order, samples,
                                                 data::RepeatedSamplerOptions{.repetitions = options.ra_reps});
}

}  // namespace

Input make_input(const Options& options, const Additions& additions) {
  const data::KnownSet& set = set_of(options);
  const bool evaluates = options.eval && (reads_data(options) || options.test_only);
  const bool has_list = !options.transforms.empty() && is_transform_list(options.transforms);
  const bool is_known = !data::has_named_parts(set) && !data::is_own(set) && !has_list;
  if (!reads_data(options) && !evaluates && is_known) return {.task = known_task(options)};
  Input input = make_whole_input(options, additions, evaluates);
  if (input.test && options.limit_val_batches)
    input.test = std::make_shared<FirstSamples>(input.test, *options.limit_val_batches * evaluation_chunk(input.task));
  return input;
}

evaluation::PassOptions pass_options(const Options& options, const models::ImageTask& task) {
  return {.batch_size = evaluation_chunk(task),
          .num_workers = options.workers,
          .prefetch_factor = kPrefetchFactor,
          .timeout = options.timeout,
          .asked_to_stop = heeds_signals(options) ? base::StopOn::requested : std::function<bool()>()};
}

std::unique_ptr<data::DataLoader> make_loader(const Options& options, const Input& input, const RunSize& run,
                                              const data::Part& part, at::Device device) {
  return std::make_unique<data::DataLoader>(
      input.train, part,
      data::DataLoaderOptions{.global_batch_size = run.plan.global_batch,
                              .sampler = sample_order(options, input.train->size(), run.plan.shards),
                              .seed = std::uint64_t(options.seed),
                              .mix = input.mix,
                              .classes = input.task.classes,
                              .num_workers = options.workers,
                              .prefetch_factor = kPrefetchFactor,
                              .timeout = options.timeout,
                              .device = device});
}

}  // namespace lockstep::train
