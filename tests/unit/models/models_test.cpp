#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <tuple>

#include "lockstep/models/convnet.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/registry.h"
#include "tests/support/usage_error.h"

namespace lockstep::models {
namespace {

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

Shapes shapes(const torch::nn::Module& module) {
  Shapes found;
  for (const auto& item : module.named_parameters()) found[item.key()] = item.value().sizes().vec();
  for (const auto& item : module.named_buffers()) found[item.key()] = item.value().sizes().vec();
  return found;
}

const Shapes kMlpShapes = {
    {"fc1.weight", {128, 784}}, {"fc1.bias", {128}}, {"fc2.weight", {10, 128}}, {"fc2.bias", {10}}};

TEST(Mlp, HasPyTorchsNamesWithAndWithoutDropout) {
  EXPECT_EQ(shapes(Mlp()), kMlpShapes);
  EXPECT_EQ(shapes(Mlp(0.5)), kMlpShapes);
  EXPECT_EQ(Mlp(0).children().size(), 2u);
  EXPECT_EQ(Mlp(0.5).children().size(), 3u);
}

TEST(Mlp, ComputesWhatItsLayersDo) {
  Mlp mlp;
  const at::Tensor images = torch::rand({3, 1, 28, 28});
  const auto p = mlp.named_parameters();
  const at::Tensor hidden = torch::relu(torch::linear(images.flatten(1), p["fc1.weight"], p["fc1.bias"]));
  EXPECT_TRUE(at::equal(mlp.forward(images), torch::linear(hidden, p["fc2.weight"], p["fc2.bias"])));
}

TEST(Mlp, DropsOutInTrainingOnly) {
  Mlp mlp(0.5);
  const at::Tensor images = torch::rand({3, 1, 28, 28});
  EXPECT_FALSE(at::equal(mlp.forward(images), mlp.forward(images)));
  mlp.eval();
  EXPECT_TRUE(at::equal(mlp.forward(images), mlp.forward(images)));
}

TEST(ConvNet, HasPyTorchsNames) {
  const Shapes expected = {{"layer1.0.weight", {16, 1, 5, 5}},
                           {"layer1.0.bias", {16}},
                           {"layer1.1.weight", {16}},
                           {"layer1.1.bias", {16}},
                           {"layer1.1.running_mean", {16}},
                           {"layer1.1.running_var", {16}},
                           {"layer1.1.num_batches_tracked", {}},
                           {"layer2.0.weight", {32, 16, 5, 5}},
                           {"layer2.0.bias", {32}},
                           {"layer2.1.weight", {32}},
                           {"layer2.1.bias", {32}},
                           {"layer2.1.running_mean", {32}},
                           {"layer2.1.running_var", {32}},
                           {"layer2.1.num_batches_tracked", {}},
                           {"fc.weight", {10, 1568}},
                           {"fc.bias", {10}}};
  EXPECT_EQ(shapes(ConvNet()), expected);
}

TEST(ConvNet, ComputesWhatItsLayersDo) {
  ConvNet net;
  net.eval();
  const at::Tensor images = torch::rand({3, 1, 28, 28});
  const auto p = net.named_parameters();
  const auto b = net.named_buffers();
  at::Tensor x = images;
  for (const std::string layer : {"layer1.", "layer2."}) {
    x = torch::conv2d(x, p[layer + "0.weight"], p[layer + "0.bias"], 1, 2);
    x = torch::batch_norm(x, p[layer + "1.weight"], p[layer + "1.bias"], b[layer + "1.running_mean"],
                          b[layer + "1.running_var"], false, 0.1, 1e-5, false);
    x = torch::max_pool2d(torch::relu(x), 2);
  }
  EXPECT_TRUE(at::equal(net.forward(images), torch::linear(x.flatten(1), p["fc.weight"], p["fc.bias"])));
}

// Python draws weight, then bias, of each layer in the order of the constructor, uniformly within
// 1 / √fan_in. The C++ modules must draw the same numbers from the same generator.
void expect_drawn_as_python(const torch::nn::Module& module, const std::vector<std::string>& layers) {
  torch::manual_seed(17);
  const auto parameters = module.named_parameters();
  for (const std::string& layer : layers) {
    const at::Tensor& weight = parameters[layer + ".weight"];
    const double fan_in = double(weight[0].numel());
    // kaiming_uniform_(a = √5): its gain and bound, in Python's order of operations.
    const double gain = std::sqrt(2.0 / (1 + std::sqrt(5.0) * std::sqrt(5.0)));
    const double bound = std::sqrt(3.0) * (gain / std::sqrt(fan_in));
    EXPECT_TRUE(at::equal(weight, torch::empty_like(weight).uniform_(-bound, bound))) << layer;
    const at::Tensor& bias = parameters[layer + ".bias"];
    const double bias_bound = 1 / std::sqrt(fan_in);
    EXPECT_TRUE(at::equal(bias, torch::empty_like(bias).uniform_(-bias_bound, bias_bound))) << layer;
  }
}

TEST(InitialWeights, AreDrawnInPythonsOrder) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(17);
  const ConvNet net;
  expect_drawn_as_python(net, {"layer1.0", "layer2.0", "fc"});
  torch::manual_seed(17);
  const Mlp mlp(0.5);
  expect_drawn_as_python(mlp, {"fc1", "fc2"});
}

TEST(Registry, MakesModelsForTheirTask) {
  for (const std::string name : {"linear", "mlp", "mlp_dropout", "convnet", "resnet18", "resnet50", "resnet18_cifar",
                                 "mobilenet_v2", "efficientnet_b0"}) {
    const auto model = make_model(name);
    EXPECT_EQ(model->forward(torch::rand({2, 1, 28, 28})).sizes(), (std::vector<std::int64_t>{2, 10})) << name;
    const auto other = make_model(name, {.channels = 3, .height = 36, .width = 33, .classes = 7});
    EXPECT_EQ(other->forward(torch::rand({2, 3, 36, 33})).sizes(), (std::vector<std::int64_t>{2, 7})) << name;
    if (picture_sizes(name).one_size) continue;
    EXPECT_EQ(other->forward(torch::rand({2, 3, 20, 40})).sizes(), (std::vector<std::int64_t>{2, 7})) << name;
  }
}

TEST(Registry, RefusesPicturesThatAModelCannotTake) {
  const auto refusal = [](const std::string& name, std::int64_t height, std::int64_t width) {
    return testing::usage_error([&] { make_model(name, {.channels = 3, .height = height, .width = width}); });
  };
  EXPECT_EQ(refusal("vgg11", 31, 40),
            "model 'vgg11' cannot take pictures of 31x40: pictures of 32x32 or larger expected");
  EXPECT_EQ(refusal("alexnet", 224, 62),
            "model 'alexnet' cannot take pictures of 224x62: pictures of 63x63 or larger expected");
  EXPECT_EQ(refusal("densenet121", 28, 28),
            "model 'densenet121' cannot take pictures of 28x28: pictures of 29x29 or larger expected");
  EXPECT_EQ(refusal("convnet", 3, 28),
            "model 'convnet' cannot take pictures of 3x28: pictures of 4x4 or larger expected");
  for (const auto& [height, width] : {std::pair(32, 48), std::pair(28, 28), std::pair(0, 0)})
    EXPECT_EQ(refusal("vit_b_16", height, width), "model 'vit_b_16' cannot take pictures of " + std::to_string(height) +
                                                      "x" + std::to_string(width) +
                                                      ": squares whose side is a multiple of 16 expected");
  EXPECT_NO_THROW(check_pictures("vgg11", {.height = 32, .width = 40}));
  EXPECT_NO_THROW(check_pictures("vit_b_16", {.height = 48, .width = 48}));
}

// From torchvision: sum(p.numel() for p in resnet18().parameters()) and so on.
TEST(ResNet, HasTorchvisionsNumberOfWeights) {
  const std::map<std::string, std::int64_t> expected = {{"resnet18", 11689512},
                                                        {"resnet34", 21797672},
                                                        {"resnet50", 25557032},
                                                        {"resnet101", 44549160},
                                                        {"resnet152", 60192808}};
  for (const auto& [name, count] : expected) {
    std::int64_t found = 0;
    for (const auto& parameter : make_model(name, {.channels = 3, .classes = 1000})->parameters())
      found += parameter.numel();
    EXPECT_EQ(found, count) << name;
  }
}

TEST(ImageModel, ComputesWithTheLastLayerThatIsRegistered) {
  for (const auto& [name, last, inputs] :
       {std::tuple("linear", "fc", 784), std::tuple("mlp", "fc2", 128), std::tuple("convnet", "fc", 1568),
        std::tuple("resnet18", "fc", 512), std::tuple("mobilenet_v2", "classifier", 1280)}) {
    const auto model = make_model(name);
    model->eval();
    const at::Tensor images = torch::rand({2, 1, 28, 28});
    torch::nn::Linear three(inputs, 3);
    model->replace_module(last, three);
    const at::Tensor logits = model->forward(images);
    EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{2, 3})) << name;
    model->replace_module(last, torch::nn::Sequential(torch::nn::Dropout(0.5), three));
    model->eval();
    EXPECT_TRUE(at::equal(model->forward(images), logits)) << name;
    model->replace_module(last, torch::nn::ReLU());
    EXPECT_NE(testing::usage_error([&] { model->forward(images); }).find("a Linear or a Sequential expected"),
              std::string::npos);
  }
}

// vgg, alexnet and efficientnet have a Head too, and vit_b_16 one by the name heads.
TEST(ImageModel, ComputesWithTheLastLayerOfItsHead) {
  const auto model = make_model("mobilenet_v2");
  model->eval();
  const at::Tensor images = torch::rand({2, 1, 28, 28});
  const auto classifier = model->named_children()["classifier"];
  torch::nn::Linear three(1280, 3);
  classifier->replace_module("1", three);
  const at::Tensor logits = model->forward(images);
  EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(model->named_parameters().contains("classifier.1.weight"));
  logits.sum().backward();
  EXPECT_TRUE(three->weight.grad().defined());
  classifier->replace_module("1", torch::nn::Sequential(torch::nn::Dropout(0.5), three));
  model->eval();
  EXPECT_TRUE(at::equal(model->forward(images), logits));
  classifier->replace_module("1", torch::nn::ReLU());
  EXPECT_EQ(testing::usage_error([&] { model->forward(images); }),
            "'1' was replaced by a torch::nn::ReLUImpl, a Linear or a Sequential expected");
}

TEST(EfficientNet, DropsBranchesOfSinglePicturesInTraining) {
  const auto model = make_model("efficientnet_b0");
  model->eval();
  const at::Tensor images = torch::rand({2, 1, 28, 28});
  EXPECT_TRUE(at::equal(model->forward(images), model->forward(images)));
  model->train();
  model->replace_module("classifier", torch::nn::Linear(1280, 10));  // without its dropout
  EXPECT_FALSE(at::equal(model->forward(images), model->forward(images)));
}

TEST(Registry, OnlyMlpDropoutDropsOut) {
  const at::Tensor images = torch::rand({2, 1, 28, 28});
  for (const std::string name : {"mlp", "mlp_dropout", "convnet"}) {
    const auto model = make_model(name);
    EXPECT_EQ(at::equal(model->forward(images), model->forward(images)), name != "mlp_dropout") << name;
  }
}

TEST(Registry, NamesTheNearestModel) {
  const std::string refusal = testing::usage_error([] { make_model("convnett"); });
  EXPECT_EQ(refusal.rfind("unknown model 'convnett': did you mean 'convnet'? (one of linear, mlp, mlp_dropout, ", 0),
            0u)
      << refusal;
}

}  // namespace
}  // namespace lockstep::models
