#include "lockstep/train/replicas.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/lockstep.h"
#include "lockstep/models/registry.h"
#include "lockstep/train/make_model.h"

namespace lockstep::train {
namespace {

using Model = std::shared_ptr<models::ImageModel>;

constexpr models::ImageTask kTask{.channels = 1, .height = 12, .width = 12, .classes = 3};

Options with_replicas(const std::string& model, int replicas) {
  return {.parallel = "dp", .replicas = replicas, .model = model};
}

// Of two steps with an optimizer of ours, five samples each: two replicas have three and two.
std::map<std::string, at::Tensor> trained_weights(const Model& model) {
  DistributedDataParallel ddp(model, std::make_shared<comm::SingleGroup>());
  optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
  at::manual_seed(3);
  for (int step = 0; step < 2; ++step) {
    torch::nn::functional::cross_entropy(ddp(torch::rand({5, 1, 12, 12})), torch::tensor({0, 1, 2, 1, 0})).backward();
    optimizer.step();
  }
  std::map<std::string, at::Tensor> weights;
  for (const auto& [name, tensor] : ddp.state_dict()) weights[name] = tensor.clone();
  return weights;
}

TEST(Replicas, TrainByAnOptimizerOfOurs) {
  for (const std::string name : {"mlp", "convnet"}) {
    const Options options = with_replicas(name, 2);
    const auto plain = trained_weights(make_model(options, kTask));
    const auto cut = trained_weights(replicated(make_model(options, kTask), options, kTask, {}));
    const auto again = trained_weights(replicated(make_model(options, kTask), options, kTask, {}));
    ASSERT_EQ(cut.size(), plain.size());
    for (const auto& [weight, tensor] : plain) {
      ASSERT_TRUE(cut.contains(weight)) << weight;
      EXPECT_TRUE(at::equal(cut.at(weight), again.at(weight))) << weight;
      // Without BatchNorm the mean over the whole batch is the same but for the order of additions.
      if (name == "mlp") {
        EXPECT_TRUE(at::allclose(cut.at(weight), tensor, 1e-4, 1e-6)) << weight;
      }
    }
  }
}

// Those of the first replica's part, as DataParallel has it: not of the whole batch.
TEST(Replicas, StatisticsAreOfTheFirstPart) {
  const Options options = with_replicas("convnet", 2);
  const Model whole = make_model(options, kTask), first = make_model(options, kTask);
  const Model replicas = replicated(whole, options, kTask, {});
  const at::Tensor x = torch::rand({5, 1, 12, 12});
  replicas->forward(x);
  first->forward(x.narrow(0, 0, 3));
  const auto found = replicas->named_buffers(), expected = first->named_buffers();
  ASSERT_GT(expected.size(), 0u);
  for (const auto& item : expected) EXPECT_TRUE(at::equal(found[item.key()], item.value())) << item.key();
  replicas->eval();
  EXPECT_FALSE(whole->is_training());
  EXPECT_TRUE(at::allclose(replicas->forward(x), whole->forward(x), 1e-4, 1e-5));
}

TEST(Replicas, ThoseThatDrawDoSoInOrder) {
  for (const std::string& name : models::model_names()) {
    const models::ImageTask task{.channels = 3, .height = 224, .width = 224, .classes = 2};
    if (name == "mlp" || name == "convnet" || name == "resnet18" || name == "densenet121") {
      EXPECT_FALSE(may_draw({.model = name}, *models::make_model(name, task))) << name;
    }
    if (name == "mlp_dropout" || name == "efficientnet_b0" || name == "mobilenet_v2") {
      EXPECT_TRUE(may_draw({.model = name}, *models::make_model(name, task))) << name;
    }
  }
  EXPECT_TRUE(
      may_draw({.own = {.program = "p", .models = {"mine"}}, .model = "mine"}, *models::make_model("mlp", kTask)));
}

}  // namespace
}  // namespace lockstep::train
