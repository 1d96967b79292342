#include "lockstep/train/fine_tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/train/make_model.h"
#include "tests/support/pt_files.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FineTuning : public ::testing::Test {
 protected:
  // A file with the weights of a model for `task`.
  std::string file_of(const std::string& model, const models::ImageTask& task) {
    checkpoint::write_safetensors(file_, checkpoint::state_dict(*make_model(Options{.model = model, .seed = 1}, task)));
    return file_;
  }

  testing::ScratchFolder folder_;
  const std::string file_ = folder_.file("w.safetensors");
};

TEST_F(FineTuning, OtherClassesLeaveTheLastLayerAsItWasDrawn) {
  for (const auto& [name, layer] :
       {std::pair("convnet", "fc"), std::pair("mlp", "fc2"), std::pair("mobilenet_v2", "classifier.1")}) {
    const Options options{.model = name, .seed = 2, .weights = file_of(name, {.classes = 1000})};
    const StartModel start = make_start_model(options);
    EXPECT_EQ(start.new_layer, std::string(layer) + ".weight in '" + file_ +
                                   "' is for 1000 classes, the data set has 10: " + layer +
                                   " starts from the seed's weights");
    const auto drawn = checkpoint::state_dict(*make_model({.model = name, .seed = 2}));
    const auto given = checkpoint::read_safetensors(file_);
    for (const auto& [key, tensor] : checkpoint::state_dict(*start.model)) {
      const bool is_last = key.starts_with(std::string(layer) + ".");
      EXPECT_TRUE(at::equal(tensor, is_last ? drawn.at(key) : given.at(key))) << name << " " << key;
    }
  }
}

TEST_F(FineTuning, TheSameClassesAreTaken) {
  const StartModel start = make_start_model({.model = "mlp", .weights = file_of("mlp", {})});
  EXPECT_EQ(start.new_layer, "");
  for (const auto& [key, tensor] : checkpoint::read_safetensors(file_))
    EXPECT_TRUE(at::equal(tensor, checkpoint::state_dict(*start.model).at(key))) << key;
}

TEST_F(FineTuning, WhatIsNoTensorIsNamedWithItsClass) {
  using namespace testing::pt;
  const std::string weight = global("torch._utils", "_rebuild_sparse_tensor") + ")R";
  const std::string bias = tensor(storage("FloatStorage", "0", 3), {3}, {1});
  const std::string file = folder_.write(
      "w.pt", archive(dictionary({{"fc1.weight", weight}, {"fc1.bias", bias}}), {{"data/0", std::string(12, '\0')}}));
  EXPECT_THAT(testing::usage_error([&] { make_start_model({.model = "mlp", .weights = file}); }),
              HasSubstr("has 'fc1.weight' as torch._utils._rebuild_sparse_tensor, which is no dense tensor"));
}

// As other programs spell it: a prefix, another last layer.
TEST_F(FineTuning, NamesOfOthersAreMapped) {
  const auto ours = checkpoint::read_safetensors(file_of("mlp", {}));
  checkpoint::TensorMap theirs;
  for (const auto& [name, tensor] : ours)
    theirs[name.starts_with("fc2.") ? "head" + name.substr(3) : "backbone." + name] = tensor;
  theirs["head_dist.weight"] = at::zeros({2});
  checkpoint::write_safetensors(file_, theirs);
  Options options{.model = "mlp", .weights = file_, .weights_map = "backbone.*=*,head.*=fc2.*,head_dist.*="};
  for (const bool test_only : {false, true}) {
    options.test_only = test_only;
    const StartModel start = make_start_model(options);
    for (const auto& [name, tensor] : checkpoint::state_dict(*start.model))
      EXPECT_TRUE(at::equal(tensor, ours.at(name))) << name;
  }
  options.weights_map += ",neck.*=";
  EXPECT_THAT(testing::usage_error([&] { make_start_model(options); }),
              HasSubstr("name map: 'neck.*' fits no tensor of '" + file_ + "'"));
}

TEST_F(FineTuning, AnythingElseThatDiffersIsAnError) {
  const auto refusal = [&](const Options& options) { return testing::usage_error([&] { make_start_model(options); }); };
  const std::string shape = "shape of fc.weight is [7, 1568], [10, 1568] expected";
  file_of("convnet", {.classes = 7});
  EXPECT_THAT(refusal({.model = "convnet", .weights = file_, .test_only = true}), HasSubstr(shape))
      << "nobody trains the last layer";
  EXPECT_THAT(refusal({.model = "mlp", .weights = file_}), HasSubstr("missing fc1.weight"));
  // Other classes and pictures of another size.
  file_of("convnet", {.height = 32, .width = 32, .classes = 7});
  EXPECT_THAT(refusal({.model = "convnet", .weights = file_}), HasSubstr("shape of fc.weight is [7, 2048]"));
  // A bias for others than the weight.
  auto tensors = checkpoint::state_dict(*make_model(Options{.model = "convnet"}, {.classes = 7}));
  tensors["fc.bias"] = at::zeros({8});
  checkpoint::write_safetensors(file_, tensors);
  EXPECT_THAT(refusal({.model = "convnet", .weights = file_}), HasSubstr(shape));
}

TEST_F(FineTuning, AHeadOfOnesOwnTakesTheLastLayersPlace) {
  for (const auto& [name, place] : {std::pair("resnet18_cifar", "fc"), std::pair("vgg11", "classifier.6")}) {
    const models::ImageTask task{.channels = 3, .height = 32, .width = 32, .classes = 3};
    models::ImageTask thousand = task;
    thousand.classes = 1000;
    const Options options{
        .model = name, .seed = 2, .weights = file_of(name, thousand), .head = "16,relu,dropout=0.5,3"};
    const StartModel start = make_start_model(options, task);
    const std::string layer = place;
    EXPECT_EQ(start.new_layer,
              layer + " is not that of '" + file_ + "', but --head: it starts from the seed's weights");
    const auto given = checkpoint::read_safetensors(file_);
    const auto got = checkpoint::state_dict(*start.model);
    EXPECT_EQ(got.at(layer + ".0.weight").size(0), 16);
    EXPECT_EQ(got.at(layer + ".3.weight").sizes(), (std::vector<std::int64_t>{3, 16}));
    EXPECT_FALSE(got.contains(layer + ".weight"));
    for (const auto& [key, tensor] : got)
      if (!key.starts_with(layer + ".")) {
        EXPECT_TRUE(at::equal(tensor, given.at(key))) << name << " " << key;
      }
    start.model->eval();
    const at::NoGradGuard no_grad;
    EXPECT_EQ(start.model->forward(at::zeros({2, 3, 32, 32})).sizes(), (std::vector<std::int64_t>{2, 3}));
    // Its own weights are taken whole.
    checkpoint::write_safetensors(file_, got);
    EXPECT_EQ(make_start_model(options, task).new_layer, "");
  }
}

TEST_F(FineTuning, AHeadEndsInTheClasses) {
  EXPECT_EQ(testing::usage_error([] { make_start_model({.model = "mlp", .head = "16,relu,3"}); }),
            "--head 16,relu,3 ends in 3, the data set has 10 classes");
}

TEST_F(FineTuning, AFrozenNewLayerIsTold) {
  const Options options{.model = "mlp", .weights = file_of("mlp", {.classes = 7}), .freeze = "fc2.*"};
  EXPECT_THAT(make_start_model(options).new_layer, HasSubstr("seed's weights, and --freeze leaves it so"));
}

std::vector<std::string> trained(const models::ImageModel& model) {
  std::vector<std::string> names;
  for (const auto& item : model.named_parameters())
    if (item.value().requires_grad()) names.push_back(item.key());
  return names;
}

TEST(Freeze, LeavesOutWhatFitsAPattern) {
  const auto left = [](const std::string& text) {
    return trained(*make_start_model({.model = "convnet", .freeze = text}).model);
  };
  EXPECT_THAT(left("layer1.*,layer2.0.weight"),
              ElementsAre("layer2.0.bias", "layer2.1.weight", "layer2.1.bias", "fc.weight", "fc.bias"));
  EXPECT_THAT(left("layer?.[01].*"), ElementsAre("fc.weight", "fc.bias")) << "a star stands for dots too";
  EXPECT_THAT(left("*.bias"),
              ElementsAre("layer1.0.weight", "layer1.1.weight", "layer2.0.weight", "layer2.1.weight", "fc.weight"));
  EXPECT_EQ(left("").size(), 10u);
}

TEST(Freeze, APatternThatFitsNothingIsAnError) {
  const auto refusal = [](const std::string& text) {
    return testing::usage_error([&] { make_start_model({.model = "convnet", .freeze = text}); });
  };
  EXPECT_EQ(refusal("layer1.*,layr2.*"), "--freeze 'layr2.*' fits the name of no parameter: did you mean 'layer2.*'?");
  EXPECT_EQ(refusal("layer1"), "--freeze 'layer1' fits the name of no parameter: did you mean 'layer1.*'?");
  EXPECT_EQ(refusal("fcc.weight"), "--freeze 'fcc.weight' fits the name of no parameter: did you mean 'fc.weight'?");
  EXPECT_EQ(refusal("encoder.*"),
            "--freeze 'encoder.*' fits the name of no parameter: they are layer1.0.weight … fc.bias");
  EXPECT_EQ(refusal(","), "--freeze '' fits the name of no parameter: they are layer1.0.weight … fc.bias");
  EXPECT_EQ(refusal("*"), "--freeze * leaves no parameter to train");
}

// An optimizer refuses a group of parameters that are not trained.
TEST(Freeze, FrozenParametersHaveNoWeightDecay) {
  const auto model = make_start_model({.model = "convnet", .freeze = "layer1.*,layer2.1.bias"}).model;
  const auto groups = weight_decays({.norm_weight_decay = 0, .bias_weight_decay = 0.5}, *model);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(groups[0].names, ElementsAre("layer2.1.weight"));
  EXPECT_THAT(groups[1].names, ElementsAre("layer2.0.bias", "fc.bias"));
  freeze({"layer2.1.weight"}, *model);
  EXPECT_EQ(weight_decays({.norm_weight_decay = 0}, *model).size(), 0u);
}

}  // namespace
}  // namespace lockstep::train
