// What fuse() replaces, what it leaves, and that nobody notices but by the clock.

#include "lockstep/nn/fuse.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/models/convnet.h"
#include "lockstep/models/registry.h"
#include "lockstep/models/vision_transformer.h"
#include "lockstep/nn/batch_norm_relu.h"
#include "lockstep/parallel/sync_batch_norm.h"

namespace lockstep::nn {
namespace {

namespace nn = torch::nn;

std::string said(const std::vector<Fusion>& fusions) {
  std::ostringstream text;
  for (const Fusion& one : fusions) text << one << '\n';
  return text.str();
}

std::vector<at::Tensor> step(models::ImageModel& model, const at::Tensor& x) {
  std::vector<at::Tensor> found{model.forward(x)};
  found[0].square().mean().backward();
  for (const at::Tensor& parameter : model.parameters()) found.push_back(parameter.grad());
  for (const at::Tensor& buffer : model.buffers()) found.push_back(buffer);
  return found;
}

TEST(Fuse, TheConvNetKeepsItsNamesTensorsAndFunction) {
  at::manual_seed(3);
  models::ConvNet plain;
  at::manual_seed(3);
  models::ConvNet fused;
  const auto before = fused.named_parameters();
  EXPECT_EQ(said(fuse(fused)),
            "layer1.1: BatchNorm2d, ReLU, MaxPool2d -> BatchNormReLUMaxPool2d\n"
            "layer2.1: BatchNorm2d, ReLU, MaxPool2d -> BatchNormReLUMaxPool2d\n");
  EXPECT_TRUE(fuse(fused).empty());
  const auto after = fused.named_parameters();
  EXPECT_EQ(after.keys(), before.keys());
  for (const auto& item : after) EXPECT_TRUE(item.value().is_same(before[item.key()]));
  EXPECT_EQ(fused.named_buffers().keys(), plain.named_buffers().keys());

  const at::Tensor x = at::rand({6, 1, 28, 28});
  const auto ours = step(fused, x), theirs = step(plain, x);
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(torch::allclose(ours[i], theirs[i], 1e-3, 1e-4)) << i;
  EXPECT_EQ(fused.buffers()[2].item<std::int64_t>(), 1);  // num_batches_tracked
  fused.eval();
  plain.eval();
  EXPECT_TRUE(torch::allclose(fused.forward(x), plain.forward(x), 1e-3, 1e-4));
}

// Their blocks are no Sequentials, and say themselves what follows what.
TEST(Fuse, ResNetsKeepTheirNamesTensorsAndFunction) {
  struct Case {
    const char* name;
    std::int64_t side;
    std::string stem;
  };
  for (const Case& one : {Case{"resnet18_cifar", 8, "bn1: BatchNorm2d, ReLU -> BatchNormReLU2d\n"},
                          Case{"resnet18", 33, "bn1: BatchNorm2d, ReLU, MaxPool2d -> BatchNormReLUMaxPool2d\n"},
                          Case{"resnet50", 33, "bn1: BatchNorm2d, ReLU, MaxPool2d -> BatchNormReLUMaxPool2d\n"}}) {
    SCOPED_TRACE(one.name);
    const models::ImageTask task{.channels = 3, .height = one.side, .width = one.side};
    at::manual_seed(3);
    const auto plain = models::make_model(one.name, task);
    at::manual_seed(3);
    const auto fused = models::make_model(one.name, task);
    const auto before = fused->named_parameters();
    const std::string text = said(fuse(*fused));
    EXPECT_EQ(text.substr(0, one.stem.size()), one.stem);
    EXPECT_NE(text.find("layer4.1.bn1: BatchNorm2d, ReLU -> BatchNormReLU2d\n"), std::string::npos) << text;
    EXPECT_NE(text.find("BatchNorm2d, +, ReLU -> BatchNormAddReLU2d\n"), std::string::npos) << text;
    EXPECT_TRUE(fuse(*fused).empty());
    const auto after = fused->named_parameters();
    EXPECT_EQ(after.keys(), before.keys());
    for (const auto& item : after) EXPECT_TRUE(item.value().is_same(before[item.key()]));
    EXPECT_EQ(fused->named_buffers().keys(), plain->named_buffers().keys());

    const at::Tensor x = at::rand({3, 3, one.side, one.side});
    if (std::string(one.name) == "resnet50") continue;  // its blocks are the same loop
    // What float32 rounds, a deep net makes large: the order of the layers shows in float64.
    fused->to(at::kDouble);
    plain->to(at::kDouble);
    const auto ours = step(*fused, x.to(at::kDouble)), theirs = step(*plain, x.to(at::kDouble));
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(torch::allclose(ours[i], theirs[i], 1e-4, 1e-6)) << i;
    fused->to(at::kFloat);
    plain->to(at::kFloat);
    fused->eval();
    plain->eval();
    EXPECT_TRUE(torch::allclose(fused->forward(x), plain->forward(x), 1e-3, 1e-3));
  }
}

// Behind its attention and within its perceptrons: their linear layers are in no Sequential.
TEST(Fuse, VisionTransformersKeepTheirNamesTensorsAndFunction) {
  const models::VisionTransformerKind kind{.patch = 4, .layers = 1, .heads = 2, .width = 8, .hidden = 16};
  const models::ImageTask task{.channels = 3, .height = 8, .width = 8};
  at::manual_seed(3);
  const auto plain = models::make_vision_transformer(kind, task);
  at::manual_seed(3);
  const auto fused = models::make_vision_transformer(kind, task);
  const auto before = fused->named_parameters();
  const std::string text = said(fuse(*fused)), layer = "encoder.layers.encoder_layer_0.";
  for (const std::string& name :
       {layer + "self_attention.out_proj", layer + "mlp.0", layer + "mlp.3", std::string("heads.head")})
    EXPECT_NE(text.find(name + ": Linear -> lockstep::nn::Linear\n"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  EXPECT_TRUE(fuse(*fused).empty());
  const auto after = fused->named_parameters();
  EXPECT_EQ(after.keys(), before.keys());
  for (const auto& item : after) EXPECT_TRUE(item.value().is_same(before[item.key()]));
  const at::Tensor x = at::rand({3, 3, 8, 8});
  const auto ours = step(*fused, x), theirs = step(*plain, x);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(torch::equal(ours[i], theirs[i])) << i;
}

TEST(Fuse, ConvertedResNetsAreLeftAlone) {
  const auto model = models::make_model("resnet18", {.channels = 3, .height = 32, .width = 32});
  const auto group = std::make_shared<comm::SingleGroup>();
  parallel::convert_sync_batchnorm(std::static_pointer_cast<nn::Module>(model), group);
  EXPECT_TRUE(fuse(*model).empty());
}

TEST(Fuse, OnlyWhatFitsIsReplaced) {
  nn::Sequential row(nn::Conv2d(1, 2, 3), nn::BatchNorm2d(2), nn::ReLU(nn::ReLUOptions(true)), nn::MaxPool2d(3),
                     nn::BatchNorm2d(2), nn::ReLU6(), nn::BatchNorm2d(2));
  EXPECT_EQ(said(fuse(*row)), "1: BatchNorm2d, ReLU -> BatchNormReLU2d\n");
  EXPECT_EQ(row->size(), 7U);
  EXPECT_EQ(row->forward(at::rand({2, 1, 11, 11})).sizes(), at::IntArrayRef({2, 2, 3, 3}));
  for (const auto& options : {nn::MaxPool2dOptions(2).ceil_mode(true), nn::MaxPool2dOptions(2).padding(1),
                              nn::MaxPool2dOptions(2).dilation(2), nn::MaxPool2dOptions(3).stride(2)}) {
    nn::Sequential other(nn::BatchNorm2d(2), nn::ReLU(), nn::MaxPool2d(options));
    EXPECT_EQ(said(fuse(*other)), "0: BatchNorm2d, ReLU -> BatchNormReLU2d\n");
  }
  nn::Sequential stem(nn::BatchNorm2d(2), nn::ReLU(), nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  EXPECT_EQ(said(fuse(*stem)), "0: BatchNorm2d, ReLU, MaxPool2d -> BatchNormReLUMaxPool2d\n");
  EXPECT_EQ(stem->ptr(0)->as<BatchNormReLUMaxPool2d>()->pooling(), Pooling::stem);
}

TEST(Fuse, LayersOfOthersAreLeftAlone) {
  nn::Sequential converted(nn::BatchNorm2d(2), nn::ReLU());
  const auto group = std::make_shared<comm::SingleGroup>();
  parallel::convert_sync_batchnorm(converted, group);
  EXPECT_TRUE(fuse(*converted).empty());

  nn::Sequential renamed(nn::BatchNorm2d(2), nn::ReLU());
  renamed->replace_module("1", nn::Identity());  // which the row does not run
  EXPECT_TRUE(fuse(*renamed).empty());

  // Registered side by side, run in whatever order.
  struct Net : nn::Module {
    Net() {
      register_module("norm", nn::BatchNorm2d(2));
      register_module("relu", nn::ReLU());
    }
  } net;
  EXPECT_TRUE(fuse(net).empty());
}

TEST(Fuse, AFusedModelIsConvertedAndClonedAsAnyOther) {
  nn::Sequential row(nn::BatchNorm2d(2), nn::ReLU(), nn::MaxPool2d(2));
  fuse(*row);
  const auto copy = std::dynamic_pointer_cast<nn::SequentialImpl>(row->clone());
  ASSERT_TRUE(copy);
  const at::Tensor x = at::rand({3, 2, 6, 6});
  EXPECT_TRUE(torch::equal(copy->forward(x), row->forward(x)));
  EXPECT_TRUE(copy->ptr(0)->as<BatchNormReLUMaxPool2d>() != nullptr);
}

}  // namespace
}  // namespace lockstep::nn
