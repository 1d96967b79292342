#include "lockstep/train/make_model.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/models/registry.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

bool same_bits(const models::ImageModel& a, const models::ImageModel& b) {
  const auto left = checkpoint::state_dict(a);
  const auto right = checkpoint::state_dict(b);
  return left.size() == right.size() && std::ranges::all_of(left, [&](const auto& item) {
           return right.contains(item.first) && at::equal(item.second, right.at(item.first));
         });
}

TEST(MakeModel, ModelsFollowNameAndSeed) {
  for (const std::string name : {"mlp", "mlp_dropout", "convnet", "resnet18", "resnet50", "resnet18_cifar"}) {
    const auto model = make_model({.model = name, .seed = 4});
    EXPECT_TRUE(same_bits(*model, *make_model({.model = name, .seed = 4}))) << name;
    EXPECT_FALSE(same_bits(*model, *make_model({.model = name, .seed = 5}))) << name;
    EXPECT_TRUE(model->is_training());
  }
}

TEST(MakeModel, EveryModelHasAName) { EXPECT_EQ(model_names(), models::model_names()); }

TEST(MakeModel, WeightsFilesReplaceTheSeedsWeights) {
  const testing::ScratchFolder folder;
  const std::string file = folder.file("w.safetensors");
  const auto model = make_model({.model = "convnet", .seed = 4});
  checkpoint::write_safetensors(file, checkpoint::state_dict(*model));
  EXPECT_TRUE(same_bits(*make_model({.model = "convnet", .seed = 5, .weights = file}), *model));
  EXPECT_THAT(testing::usage_error([&] { make_model({.model = "mlp", .weights = file}); }),
              AllOf(HasSubstr("w.safetensors does not fit the model"), HasSubstr("missing fc1.weight"),
                    HasSubstr("unexpected layer2.1.running_var")));
  EXPECT_THAT(testing::usage_error([&] { make_model({.weights = folder.file("none")}); }), HasSubstr("none"));
}

// The weights after one step from a gradient of the model's own making.
checkpoint::TensorMap after_one_step(const Options& options) {
  const auto model = make_model(options);
  support::run_ranks(support::RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
    parallel::DistributedDataParallel<std::shared_ptr<models::ImageModel>> ddp(model, group);
    const auto optimizer = make_optimizer(options, *model, ddp);
    EXPECT_EQ(optimizer->lr(), options.lr);
    ddp(at::ones({2, 1, 28, 28})).pow(2).sum().backward();
    optimizer->step();
  });
  checkpoint::TensorMap copies;
  for (const auto& [name, tensor] : checkpoint::state_dict(*model)) copies.emplace(name, tensor.clone());
  return copies;
}

TEST(MakeModel, EveryOptimizerTakesItsOptions) {
  const auto weight = [](Options options) {
    options.model = "mlp";
    options.lr = 0.01;
    return after_one_step(options).at("fc2.weight");
  };
  std::vector<at::Tensor> found;
  for (const std::string& name : optimizer_names())
    found.push_back(weight({.opt = name, .momentum = name == "sgd_nesterov" ? 0.9 : 0.0}));
  // Adam and AdamW differ by their decay only.
  for (std::size_t i = 0; i < found.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_EQ(at::equal(found[i], found[j]), optimizer_names()[i] == "adamw" && optimizer_names()[j] == "adam")
          << optimizer_names()[i] << " " << optimizer_names()[j];
  for (const std::string& name : optimizer_names()) {
    const double momentum = name == "sgd_nesterov" ? 0.9 : 0.0;
    EXPECT_FALSE(at::equal(weight({.opt = name, .momentum = momentum, .weight_decay = 0.1}),
                           weight({.opt = name, .momentum = momentum})))
        << name;
  }
}

// Whose trainer asks for an alpha of 0.9 and an eps of 0.0316.
TEST(MakeModel, RMSpropHasTheNumbersOfTorchvisionsTrainer) {
  const auto weight = [](Options options) {
    options.model = "mlp";
    return after_one_step(options).at("fc2.weight").to(at::kDouble);
  };
  const at::Tensor start = weight({.opt = "sgd", .lr = 0});
  const at::Tensor gradient = start - weight({.opt = "sgd", .lr = 1});
  const at::Tensor wanted = start - 0.01 * gradient / (gradient.abs() * std::sqrt(0.1) + 0.0316);
  EXPECT_TRUE(at::allclose(weight({.opt = "rmsprop", .lr = 0.01}), wanted, 0, 1e-5));
}

TEST(MakeModel, WeightDecaysAreThoseOfTorchvision) {
  const auto model = make_model({.model = "convnet"});
  EXPECT_THAT(weight_decays({}, *model), IsEmpty());
  const auto both = weight_decays({.norm_weight_decay = 0, .bias_weight_decay = 0.5}, *model);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_THAT(both[0].names, ElementsAre("layer1.1.weight", "layer2.1.weight"));
  EXPECT_EQ(both[0].decay, 0);
  EXPECT_THAT(both[1].names,
              ElementsAre("layer1.0.bias", "layer1.1.bias", "layer2.0.bias", "layer2.1.bias", "fc.bias"));
  EXPECT_EQ(both[1].decay, 0.5);
  const auto norms = weight_decays({.norm_weight_decay = 0.25}, *model);
  ASSERT_EQ(norms.size(), 1u);
  EXPECT_THAT(norms[0].names, ElementsAre("layer1.1.weight", "layer1.1.bias", "layer2.1.weight", "layer2.1.bias"));
}

TEST(MakeModel, EveryOptimizerTakesWeightDecaysOfItsOwn) {
  for (const std::string& name : optimizer_names()) {
    const Options plain{.model = "mlp", .opt = name, .lr = 0.01, .momentum = name == "sgd_nesterov" ? 0.9 : 0.0};
    Options biases = plain;
    biases.bias_weight_decay = 10;
    const auto without = after_one_step(plain), with = after_one_step(biases);
    EXPECT_TRUE(at::equal(without.at("fc2.weight"), with.at("fc2.weight"))) << name;
    EXPECT_FALSE(at::equal(without.at("fc2.bias"), with.at("fc2.bias"))) << name;
  }
}

// By the names that torchvision's script knows: of its vit_b_16 the class token, not encoder.pos_embedding.
TEST(MakeModel, EmbeddingsMayHaveAWeightDecayOfTheirOwn) {
  const auto model = std::make_shared<torch::nn::Module>();
  for (const char* name : {"class_token", "pos_embedding", "relative_position_bias_table"})
    model->register_parameter(name, at::zeros({1}));
  const auto own = weight_decays({.transformer_embedding_decay = 0}, *model);
  ASSERT_EQ(own.size(), 1u);
  EXPECT_THAT(own[0].names, ElementsAre("class_token", "relative_position_bias_table"));
  EXPECT_EQ(own[0].decay, 0);
  EXPECT_THAT(weight_decays({}, *model), IsEmpty());
}

TEST(MakeModel, SaysWhetherAModelHasConvolutions) {
  EXPECT_TRUE(has_convolutions(*make_model({.model = "convnet"})));
  EXPECT_FALSE(has_convolutions(*make_model({.model = "mlp"})));
}

}  // namespace
}  // namespace lockstep::train
