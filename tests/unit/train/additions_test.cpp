#include "lockstep/train/additions.h"

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/picture_set.h"
#include "lockstep/data/tensor_batches.h"
#include "lockstep/models/registry.h"
#include "lockstep/train/input.h"
#include "lockstep/train/make_model.h"
#include "lockstep/train/own_names.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct OwnNet : torch::nn::Module {
  explicit OwnNet(std::int64_t classes) : out(register_module("out", torch::nn::Linear(3, classes))) {}
  at::Tensor scale = register_parameter("scale", at::ones({3}));
  at::Tensor fixed = register_parameter("fixed", at::ones({3}), /*requires_grad=*/false);
  at::Tensor seen = register_buffer("seen", at::zeros({}));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(3));
  torch::nn::Linear out;
  at::Tensor forward(const at::Tensor& x) {
    if (is_training()) seen += 1;
    return out(norm(x * scale * fixed));
  }
};

Additions additions() {
  return {.models = {{"net", [](const models::ImageTask& task) { return std::make_shared<OwnNet>(task.classes); }}},
          .datasets = {{.name = "rows", .classes = 2, .samples = [](const Opening& opening) {
                          const std::int64_t size = opening.split == data::Split::train ? 6 : 4;
                          return data::tensors(at::ones({size, 3}), at::arange(size).remainder(2));
                        }}}};
}

Options own_options(const Additions& added) {
  const std::vector<const char*> flags = {"build/mine"};
  return parse_options(1, flags.data(), names_of(added, flags[0])).options;
}

TEST(AnyModel, IsTheModelUnderItsOwnNames) {
  const auto net = std::make_shared<OwnNet>(2);
  const std::shared_ptr<models::ImageModel> model = models::AnyModel(net).model();
  EXPECT_THAT(model->named_parameters().keys(),
              ElementsAre("scale", "fixed", "norm.weight", "norm.bias", "out.weight", "out.bias"));
  EXPECT_EQ(model->named_parameters().keys(), net->named_parameters().keys());
  EXPECT_EQ(model->named_buffers().keys(), net->named_buffers().keys());
  for (const auto& item : net->named_parameters()) {
    const at::Tensor& same = model->named_parameters()[item.key()];
    EXPECT_TRUE(same.is_same(item.value())) << item.key();
    EXPECT_EQ(same.requires_grad(), item.key() != "fixed") << item.key();
  }
  model->eval();
  EXPECT_FALSE(net->is_training());
  EXPECT_FALSE(net->norm->is_training());
  const at::Tensor x = at::rand({5, 3});
  EXPECT_TRUE(at::equal(model->forward(x), net->forward(x)));
  model->train(true);
  model->forward(x);
  EXPECT_EQ(net->seen.item<float>(), 1);
  EXPECT_EQ(models::last_layer(*model), "out");
}

TEST(AnyModel, TakesHoldersAndOursAndNothingElse) {
  torch::nn::Sequential layers(torch::nn::Linear(3, 2), torch::nn::Dropout(0.5));
  EXPECT_THAT(models::AnyModel(layers).model()->named_parameters().keys(), ElementsAre("0.weight", "0.bias"));
  EXPECT_EQ(models::AnyModel(layers).model()->forward(at::ones({4, 3})).size(1), 2);
  const auto ours = models::make_model("mlp");
  EXPECT_EQ(models::AnyModel(ours).model(), ours);
  EXPECT_THAT(testing::usage_error([] { models::AnyModel(std::shared_ptr<OwnNet>()); }), HasSubstr("null pointer"));
}

TEST(Additions, AModelIsMadeBySeedOrFromAFile) {
  const Additions added = additions();
  Options options = own_options(added);
  const auto weights = [&] {
    return make_model(options, {.classes = 2}, added)->named_parameters()["out.weight"].clone();
  };
  const at::Tensor first = weights();
  EXPECT_EQ(first.sizes(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(at::equal(weights(), first));
  const testing::ScratchFolder folder;
  options.weights = folder.file("w.safetensors");
  checkpoint::write_safetensors(options.weights,
                                checkpoint::state_dict(*make_model(own_options(added), {.classes = 2}, added)));
  options.seed = 5;
  EXPECT_TRUE(at::equal(weights(), first));
  options.weights.clear();
  EXPECT_FALSE(at::equal(weights(), first));
}

TEST(Additions, ASetIsOpenedByItsParts) {
  const Additions added = additions();
  const Input input = make_input(own_options(added), added);
  EXPECT_EQ(input.train->size(), 6);
  EXPECT_EQ(input.test->size(), 4);
  EXPECT_EQ(input.task, (models::ImageTask{.channels = 1, .height = 1, .width = 3, .classes = 2}));
  EXPECT_EQ(input.train_set.samples, 6);
  EXPECT_NE(input.train_set, input.test_set);
}

TEST(Additions, ASetOfPicturesIsPrepared) {
  Additions added = additions();
  added.datasets = {{.name = "dogs", .pictures = [](const Opening& opening) {
                       EXPECT_EQ(opening.path, "kennel");
                       EXPECT_EQ(opening.seed, 3u);
                       data::MemoryPictures::Content content{.size = {8, 8}, .classes = {"pug", "beagle"}};
                       content.labels = {0, 1, 1};
                       content.pixels.assign(3 * 8 * 8 * 3, 255);
                       return std::make_shared<data::MemoryPictures>(content);
                     }}};
  Options options = own_options(added);
  options.seed = 3;
  options.data_path = "kennel";
  options.transforms = "resize=4x4,to_tensor";
  const Input input = make_input(options, added);
  EXPECT_EQ(input.task, (models::ImageTask{.channels = 3, .height = 4, .width = 4, .classes = 2}));
  const std::int64_t last[] = {2};
  EXPECT_EQ(input.train->make(0, last).data.min().item<float>(), 1);
}

std::string refusal_of(const at::Tensor& data, const at::Tensor& target, std::int64_t classes) {
  Additions added = additions();
  added.datasets = {
      {.name = "rows", .classes = classes, .samples = [&](const Opening&) { return data::tensors(data, target); }}};
  return testing::usage_error([&] { make_input(own_options(added), added); });
}

TEST(Additions, WhatASetSaysOfItsTargetsIsChecked) {
  const at::Tensor rows = at::ones({4, 3});
  EXPECT_EQ(refusal_of(rows, at::ones({4}), 2),
            "--dataset rows: the part to train on has targets of float []: long int [] expected");
  EXPECT_EQ(refusal_of(rows, at::full({4}, 2, at::kLong), 2),
            "--dataset rows: the part to train on has a sample of class 2: 0 to 1 expected");
  EXPECT_EQ(refusal_of(rows, at::ones({4}), 0),
            "--dataset rows: the part to train on has targets of float []: float [targets] expected");
  EXPECT_THAT(refusal_of(rows, {}, 2), HasSubstr("without a target"));
  EXPECT_THAT(refusal_of(rows.narrow(0, 0, 0), at::ones({0}), 2), HasSubstr("the part to train on has no samples"));
}

// PyTorch's loss would leave out -100 without a word, and name no sample for other labels.
TEST(Additions, EveryLabelThatIsTrainedOnIsChecked) {
  const auto refusal = [](std::vector<std::int64_t> labels) {
    Additions added = additions();
    added.datasets = {{.name = "rows", .classes = 2, .samples = [labels](const Opening&) {
                         return data::tensors(at::ones({std::int64_t(labels.size()), 3}), at::tensor(labels));
                       }}};
    const Input input = make_input(own_options(added), added);
    const std::int64_t all[] = {0, 2, 1};
    return testing::usage_error([&] { input.train->make(0, all); });
  };
  EXPECT_EQ(refusal({0, 1, -100}), "sample 2 of those to train on is of class -100: 0 to 1 expected");
  EXPECT_EQ(refusal({0, 2, 1}), "sample 1 of those to train on is of class 2: 0 to 1 expected");
}

class Changing final : public data::Batches {
 public:
  std::int64_t size() const override { return 2; }
  data::Batch make(std::uint64_t /*epoch*/, std::span<const std::int64_t> indices) const override {
    const auto count = std::int64_t(indices.size());
    return {at::ones({count, 3}), at::zeros({count}, indices[0] == 0 ? at::kLong : at::kFloat)};
  }
};

TEST(Additions, TargetsOfALaterBatchAreChecked) {
  Additions added = additions();
  added.datasets = {
      {.name = "rows", .classes = 2, .samples = [](const Opening&) { return std::make_shared<Changing>(); }}};
  const Input input = make_input(own_options(added), added);
  const std::int64_t all[] = {1, 0};
  EXPECT_EQ(testing::usage_error([&] { input.train->make(0, all); }),
            "samples to train on, sample 1 first, have targets of float [2]: long int [2] expected");
}

class Mislabelled final : public data::PictureSet {
 public:
  std::int64_t size() const override { return 4; }
  data::Sample get(std::int64_t index) const override {
    return {data::Picture(data::Image(8, 8, 3)), index == 3 ? -100 : index % 2};
  }
  const std::vector<std::string>& classes() const override { return classes_; }

 private:
  std::vector<std::string> classes_{"pug", "beagle"};
};

// With --ra-sampler a number behind the set's size is a repetition of a sample.
TEST(Additions, LabelsOfASetOfPicturesAreChecked) {
  Additions added = additions();
  added.datasets = {{.name = "dogs", .pictures = [](const Opening&) { return std::make_shared<Mislabelled>(); }}};
  Options options = own_options(added);
  options.ra_sampler = true;
  options.ra_reps = 2;
  const Input input = make_input(options, added);
  const std::int64_t right[] = {0, 1, 6}, wrong[] = {7};
  EXPECT_EQ(input.train->make(0, right).target.numel(), 3);
  EXPECT_EQ(testing::usage_error([&] { input.train->make(0, wrong); }),
            "sample 3 of those to train on is of class -100: 0 to 1 expected");
}

TEST(Additions, NamesAreTheirOwn) {
  const auto make = [](const models::ImageTask&) { return std::make_shared<OwnNet>(2); };
  const auto samples = [](const Opening&) { return data::tensors(at::ones({1, 3}), at::zeros({1}, at::kLong)); };
  const auto refusal = [](const Additions& added) { return testing::usage_error([&] { names_of(added, "x"); }); };
  EXPECT_THAT(refusal({.models = {{"resnet18", make}}}),
              HasSubstr("a model of this program is called resnet18, as another"));
  EXPECT_THAT(refusal({.models = {{"a", make}, {"a", make}}}), HasSubstr("called a, as another"));
  EXPECT_THAT(refusal({.models = {{"", make}}}), HasSubstr("without spaces and commas"));
  EXPECT_THAT(refusal({.models = {{"a b", make}}}), HasSubstr("'a b'"));
  EXPECT_THAT(refusal({.models = {{"a", {}}}}), HasSubstr("no function that makes it"));
  EXPECT_THAT(refusal({.datasets = {{.name = "mnist", .classes = 2, .samples = samples}}}), HasSubstr("called mnist"));
  EXPECT_THAT(refusal({.datasets = {{.name = "none", .classes = 2}}}), HasSubstr("one of the two"));
  EXPECT_THAT(refusal({.datasets = {{.name = "few", .classes = -1, .samples = samples}}}), HasSubstr("-1 classes"));
  const OwnNames names = names_of(
      {.models = {{"a", make}}, .datasets = {{.name = "s", .classes = 2, .samples = samples}}}, "build/bin/mine");
  EXPECT_EQ(names.program, "mine");
  EXPECT_THAT(names.models, ElementsAre("a"));
  EXPECT_EQ(names.sets.at(0).files, data::SetFiles::own_samples);
}

}  // namespace
}  // namespace lockstep::train
