#include "lockstep/train/options_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "parsed_options.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

TEST(PublishedWeights, MayBeNamedAsTorchvisionDoes) {
  const testing::ScratchFolder home;
  ::setenv("TORCH_HOME", home.path().c_str(), 1);
  const std::string file = home.write("hub/checkpoints/resnet34-b627a593.pth", "");
  const auto named = [](const char* weights) {
    return std::vector<const char*>{"--synthetic", "--dataset", "mnist", "--model", "resnet34", "--weights", weights};
  };
  EXPECT_EQ(options(named("ResNet34_Weights.IMAGENET1K_V1")).weights, file);
  EXPECT_EQ(options(named("ResNet34_Weights.DEFAULT")).weights, file);
  EXPECT_EQ(options(named("a/ResNet34_Weights.pt")).weights, "a/ResNet34_Weights.pt") << "a file's name";
  EXPECT_EQ(refusal(named("ResNet50_Weights.DEFAULT")),
            "--weights ResNet50_Weights.DEFAULT is of --model resnet50, not of resnet34");
  EXPECT_THAT(refusal(named("ResNet34_Weights.IMAGENET1K_V3")),
              HasSubstr("did you mean ResNet34_Weights.IMAGENET1K_V1?"));
  std::filesystem::remove(file);
  EXPECT_EQ(refusal(named("ResNet34_Weights.DEFAULT")),
            "--weights ResNet34_Weights.DEFAULT: no file '" + file +
                "', where torchvision keeps it; python3 -c \"import torchvision; "
                "torchvision.models.get_weight('ResNet34_Weights.DEFAULT').get_state_dict()\" brings it");
}

TEST(PublishedWeights, EveryModelOfTorchvisionsHasPublishedWeights) {
  const std::set<std::string> ours = {"linear", "mlp", "mlp_dropout", "convnet", "resnet18_cifar"};
  for (const std::string& model : model_names()) {
    int defaults = 0;
    for (const PublishedWeights& one : published_weights()) defaults += one.model == model && one.is_default;
    EXPECT_EQ(defaults, ours.contains(model) ? 0 : 1) << model;
  }
}

}  // namespace
}  // namespace lockstep::train
