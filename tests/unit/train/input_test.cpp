#include "lockstep/train/input.h"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "lockstep/data/samplers/distributed.h"
#include "lockstep/data/samplers/random.h"
#include "lockstep/data/sets/known_sets.h"
#include "tests/support/image_files.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::train {
namespace {

using models::ImageTask;
using ::testing::HasSubstr;
using testing::usage_error;

// Pictures of 40x30 to train on and to evaluate on.
class FolderInput : public ::testing::Test {
 protected:
  FolderInput() {
    testing::write_pictures(folder_, "train", {.per_class = 3, .size = {40, 30}});
    testing::write_pictures(folder_, "val", {.per_class = 2, .size = {40, 30}});
  }

  Options options(const std::string& transforms, const std::string& model = "resnet18") const {
    return {.model = model, .dataset = "imagefolder", .data_path = folder_.path(), .transforms = transforms};
  }
  void rename(const std::string& from, const std::string& to) const {
    std::filesystem::rename(folder_.file(from), folder_.file(to));
  }

  testing::ScratchFolder folder_;
};

TEST_F(FolderInput, TransformsDecideWhatTheModelSees) {
  const Input plain = make_input(options("none"));
  EXPECT_EQ(plain.task, (ImageTask{3, 40, 30, 2}));
  EXPECT_EQ(plain.train->size(), 6);
  EXPECT_EQ(plain.test->size(), 4);
  EXPECT_EQ(make_input(options("imagenet")).task, (ImageTask{3, 224, 224, 2}));
  Options small = options("imagenet");
  small.train_crop_size = 32;
  small.val_resize_size = 36;
  small.val_crop_size = 34;
  const Input cropped = make_input(small);
  EXPECT_EQ(cropped.task, (ImageTask{3, 32, 32, 2}));
  const std::int64_t all[] = {0, 1, 2, 3};
  EXPECT_EQ(cropped.test->make(0, all).data.sizes(), (std::vector<std::int64_t>{4, 3, 34, 34}));
}

TEST_F(FolderInput, EveryFlagOfTheTransformsShows) {
  const std::int64_t all[] = {0, 1, 2, 3, 4, 5};
  const auto batch = [&](const Options& wanted) { return make_input(wanted).train->make(0, all).data; };
  Options options = this->options("cifar");
  const at::Tensor plain = batch(options);
  EXPECT_EQ(plain.sizes(), (std::vector<std::int64_t>{6, 3, 32, 32}));
  EXPECT_TRUE(at::equal(plain, batch(options)));
  const auto differs = [&](auto&& change) {
    Options changed = options;
    change(changed);
    return !at::equal(plain, batch(changed));
  };
  EXPECT_TRUE(differs([](Options& o) { o.seed = 1; }));
  EXPECT_TRUE(differs([](Options& o) { o.random_erase = 1; }));
  for (const std::string& policy : auto_augment_names())
    EXPECT_EQ(differs([&](Options& o) { o.auto_augment = policy; }), policy != "none") << policy;
  options.auto_augment = "ra";
  const at::Tensor usual = batch(options);
  options.ra_magnitude = 30;
  EXPECT_FALSE(at::equal(usual, batch(options)));
  options.auto_augment = "augmix";
  const at::Tensor weak = batch(options);
  options.augmix_severity = 10;
  EXPECT_FALSE(at::equal(weak, batch(options)));
  options.transforms = "imagenet";
  options.train_crop_size = 32;
  const at::Tensor bilinear = batch(options);
  options.interpolation = "nearest";
  EXPECT_FALSE(at::equal(bilinear, batch(options)));
}

TEST_F(FolderInput, ACacheOutlivesTheFiles) {
  Options options = this->options("none");
  options.cache_images = 1;
  const Input input = make_input(options);
  const std::int64_t all[] = {0, 1, 2, 3, 4, 5};
  const at::Tensor read = input.train->make(0, all).data;
  std::filesystem::remove_all(folder_.file("train"));
  EXPECT_TRUE(at::equal(input.train->make(1, all).data, read));
}

// That it is used is the affair of the folder index's tests, which wait until folders count as unchanged.
TEST_F(FolderInput, FoldersAreRememberedWhereAsked) {
  Options options = this->options("none");
  options.index_cache = folder_.file("cache");
  std::filesystem::create_directories(folder_.file("cache/train.index"));
  EXPECT_THAT(usage_error([&] { make_input(options); }), HasSubstr(folder_.file("cache/train.index")));
  std::filesystem::rename(folder_.file("cache/train.index"), folder_.file("cache/test.index"));
  EXPECT_THAT(usage_error([&] { make_input(options); }), HasSubstr(folder_.file("cache/test.index")));
}

// Folders that have just changed are not written into the index: there is the empty folder for it.
TEST_F(FolderInput, TheFolderOfTheIndexIsMade) {
  Options options = this->options("none");
  options.index_cache = folder_.file("not/there/yet");
  make_input(options);
  EXPECT_TRUE(std::filesystem::is_directory(options.index_cache));
  options.index_cache = folder_.write("file", "") + "/cache";
  EXPECT_EQ(usage_error([&] { make_input(options); }),
            "--index-cache '" + options.index_cache + "': cannot be created: Not a directory");
}

TEST_F(FolderInput, TestStandsInForVal) {
  rename("val", "test");
  EXPECT_EQ(make_input(options("none")).test->size(), 4);
  rename("test", "other");
  EXPECT_THAT(usage_error([&] { make_input(options("none")); }), HasSubstr("no folder 'val' or 'test' in '"));
  Options no_eval = options("none");
  no_eval.eval = false;
  EXPECT_EQ(make_input(no_eval).test, nullptr);
}

// Another user, or another host, may be able to look: he would evaluate on other pictures.
TEST_F(FolderInput, AFolderThatCannotBeLookedAtIsNotAMissingOne) {
  rename("val", "test");
  std::filesystem::create_symlink("val", folder_.file("val"));
  EXPECT_THAT(usage_error([&] { make_input(options("none")); }),
              HasSubstr("cannot look at '" + folder_.file("val") + "': Too many levels of symbolic links"));
}

TEST_F(FolderInput, BothHalvesMustFit) {
  Options other_crop = options("imagenet", "convnet");
  other_crop.train_crop_size = 64;
  EXPECT_EQ(usage_error([&] { make_input(other_crop); }),
            "--model convnet trains on pictures of 3x64x64 and cannot be evaluated on 3x224x224: --train-crop-size and "
            "--val-crop-size must be equal");
  other_crop.model = "mobilenet_v2";  // which takes pictures of any size
  EXPECT_NO_THROW(make_input(other_crop));
  other_crop.model = "vgg11";
  other_crop.val_crop_size = 24;
  EXPECT_EQ(usage_error([&] { make_input(other_crop); }),
            "model 'vgg11' cannot take pictures of 24x24: pictures of 32x32 or larger expected");
  rename("val/bee", "val/wasp");
  EXPECT_EQ(usage_error([&] { make_input(options("none")); }),
            "'" + folder_.path() + "': the classes to evaluate on are ant, wasp, those to train on ant, bee");
}

TEST_F(FolderInput, PartsMayHaveOtherNames) {
  rename("train", "Train");
  rename("val", "Validation");
  Options named = options("none");
  named.train_split = "Train";
  named.val_split = "Validation";
  EXPECT_EQ(make_input(named).test->size(), 4);
  named.val_split = "val";
  EXPECT_THAT(usage_error([&] { make_input(named); }), HasSubstr("no folder 'val' in '"));
}

TEST_F(FolderInput, PicturesByAList) {
  folder_.write("train.csv", "path,label\ntrain/ant/0.jpg,2\ntrain/bee/1.jpg,10\n");
  folder_.write("val.csv", "val/bee/0.jpg,10\n");
  Options listed = options("none");
  listed.dataset = "csv-images";
  const Input input = make_input(listed);
  EXPECT_EQ(input.task, (ImageTask{3, 40, 30, 2}));
  const std::int64_t first[] = {0};
  EXPECT_EQ(input.test->make(0, first).target.item<std::int64_t>(), 1) << "by the classes to train on";
  EXPECT_TRUE(at::equal(input.train->make(0, first).data, make_input(options("none")).train->make(0, first).data));
}

TEST_F(FolderInput, AListOfTransforms) {
  const Input input = make_input(options("rotation=90,resize=20x16,hflip=1,to_tensor,normalize=imagenet"));
  EXPECT_EQ(input.task, (ImageTask{3, 20, 16, 2}));
  const std::int64_t all[] = {0, 1, 2, 3};
  EXPECT_FALSE(at::equal(input.train->make(0, all).data, input.train->make(1, all).data)) << "epochs differ";
  const at::Tensor tested = input.test->make(0, all).data;
  EXPECT_TRUE(at::equal(tested, make_input(options("resize=20x16,normalize=imagenet")).test->make(0, all).data))
      << "an evaluation draws no random numbers";
  EXPECT_LT(tested.min().item<float>(), 0) << "normalized";
  EXPECT_GE(make_input(options("resize=20x16,to_tensor")).test->make(0, all).data.min().item<float>(), 0);
}

// As torchvision's transforms do by default. The flag is for what resizes.
TEST_F(FolderInput, InAListPoliciesAndRotationTakeTheNearestPixel) {
  const std::int64_t all[] = {0, 1, 2, 3, 4, 5};
  const auto heeded = [&](const std::string& list) {
    Options options = this->options(list);
    const at::Tensor bilinear = make_input(options).train->make(0, all).data;
    options.interpolation = "nearest";
    return !at::equal(make_input(options).train->make(0, all).data, bilinear);
  };
  for (const char* list : {"rotation=90", "auto_augment", "auto_augment=cifar10", "auto_augment=ra",
                           "auto_augment=ta_wide", "hflip,center_crop=20"})
    EXPECT_FALSE(heeded(list)) << list;
  for (const char* list : {"resize=20", "random_resized_crop=20", "auto_augment=augmix"})
    EXPECT_TRUE(heeded(list)) << list;
}

TEST(Input, IsNotReadForARunWithoutSteps) {
  Options options{.dataset = "cifar100", .data_path = "/nowhere", .max_steps = 0, .transforms = "cifar"};
  const Input input = make_input(options);
  EXPECT_EQ(input.train, nullptr);
  EXPECT_EQ(input.task, (ImageTask{3, 32, 32, 100}));
  options.transforms = "imagenet";
  EXPECT_EQ(make_input(options).task, (ImageTask{3, 224, 224, 100}));
  EXPECT_EQ(make_input({.dataset = "mnist", .data_path = "/nowhere", .max_steps = 0}).task, ImageTask());
}

TEST_F(FolderInput, EveryInterpolationIsKnown) {
  Options options = this->options("imagenet");
  options.train_crop_size = 32;
  for (const std::string& name : interpolation_names()) {
    options.interpolation = name;
    EXPECT_EQ(make_input(options).task.height, 32) << name;
  }
}

TEST(Input, EveryNameIsKnown) {
  for (const data::KnownSet& set : data::known_sets()) {
    if (data::has_named_parts(set)) continue;  // only its pictures tell what they are
    const Input input = make_input({.dataset = set.name, .data_path = "/nowhere", .max_steps = 0});
    EXPECT_EQ(input.task.channels, set.task.channels) << set.name;
    EXPECT_EQ(input.task.height, set.task.height) << set.name;
    EXPECT_EQ(input.task.classes, set.task.classes) << set.name;
  }
}

TEST(Input, SetsByName) {
  const Input digits = make_input({.dataset = "digits", .transforms = "none"});
  EXPECT_EQ(digits.train->size(), 60000);
  EXPECT_EQ(digits.test->size(), 10000);
  EXPECT_EQ(digits.task, ImageTask());
  for (const data::KnownSet& set : data::known_sets()) {
    if (data::is_drawn(set)) continue;
    const std::string place = set.folder.empty() ? "/nowhere/train" : "/nowhere/" + set.folder;
    EXPECT_THAT(usage_error([&] { make_input({.dataset = set.name, .data_path = "/nowhere"}); }), HasSubstr(place))
        << set.name;
  }
}

// Sample i is the number i.
class Numbers final : public data::Batches {
 public:
  std::int64_t size() const override { return 20; }
  data::Batch make(std::uint64_t /*epoch*/, std::span<const std::int64_t> indices) const override {
    const at::Tensor numbers = at::empty({std::int64_t(indices.size())}, at::kLong);
    std::copy(indices.begin(), indices.end(), numbers.mutable_data_ptr<std::int64_t>());
    return {numbers, numbers};
  }
};

// An epoch keeps its length, and each shard gets a repetition of its own.
TEST(TrainLoader, RepeatsTheAugmentationWhereAsked) {
  const Options options{.seed = 3, .ra_sampler = true, .ra_reps = 2};
  const Input input{.train = std::make_shared<Numbers>()};
  const BatchPlan plan{.global_batch = 4, .shards = 2, .shard_batch = 2};
  const RunSize run{.plan = plan, .total_steps = 5, .train_samples = 20, .epoch_steps = 5, .first_step = 1};
  const auto first = make_loader(options, input, run, {.rank = 0, .ranks = 2, .shards = 2});
  const auto second = make_loader(options, input, run, {.rank = 1, .ranks = 2, .shards = 2});
  const std::vector<std::int64_t> order = data::RandomSampler(20, {.seed = 3}).order(0);
  EXPECT_EQ(first->size(), 5);
  for (std::size_t place = 0; place < 10; place += 2) {
    const at::Tensor once = first->next()->data, again = second->next()->data;
    EXPECT_EQ(once[0].item<std::int64_t>(), order[place]);
    EXPECT_EQ(once[1].item<std::int64_t>(), order[place + 1]);
    EXPECT_TRUE(at::equal(again, once + 20)) << "the same samples, augmented anew";
  }
}

// Shard 1 of 2, 10 samples of 20 in each epoch of 5 steps.
TEST(TrainLoader, GivesTheBatchesOfThePlan) {
  const Options options{.seed = 3, .workers = 2};
  const Input input{.train = std::make_shared<Numbers>()};
  const BatchPlan plan{.global_batch = 4, .shards = 2, .shard_batch = 2};
  const RunSize run{.plan = plan};
  const auto loader = make_loader(options, input, run, {.rank = 1, .ranks = 2, .shards = 2});
  EXPECT_EQ(loader->size(), steps_per_epoch(plan, 20));
  loader->restore({0, 3});
  data::DistributedSampler sampler(20, 2, 1, {.seed = 3});
  for (std::int64_t step = 4; step <= 8; ++step) {
    const StepPlace place = place_of_step(step, 5);
    sampler.set_epoch(std::uint64_t(place.epoch));
    const std::vector<std::int64_t> order = sampler.indices();
    std::optional<data::Batch> batch = loader->next();
    if (!batch) batch = loader->next();  // behind the end of an epoch
    ASSERT_TRUE(batch) << step;
    ASSERT_EQ(batch->data.numel(), 2) << step;
    for (std::int64_t i = 0; i < 2; ++i)
      EXPECT_EQ(batch->data.const_data_ptr<std::int64_t>()[i], order[std::size_t(2 * place.batch + i)]) << step;
  }
}

TEST(TrainLoader, EvaluatesAsTheFlagsSay) {
  const evaluation::PassOptions pass = pass_options({.workers = 3, .timeout = 7}, {.height = 8000, .width = 8000});
  EXPECT_EQ(pass.batch_size, 1);
  EXPECT_EQ(pass.num_workers, 3);
  EXPECT_EQ(pass.timeout, 7);
}

}  // namespace
}  // namespace lockstep::train
