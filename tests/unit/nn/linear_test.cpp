// Our Linear beside PyTorch's: the same bits, and with an engine the gradients are computed where they belong.

#include "lockstep/nn/linear.h"

#include <ATen/ops/linear.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/serialize.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/models/vision_transformer.h"
#include "lockstep/nn/fuse.h"
#include "tests/support/ranks.h"
#include "tests/unit/nn/linear_job.h"

namespace lockstep::nn {
namespace {

using ::testing::HasSubstr;
using torch::nn::LinearOptions;

TEST(Linear, IsPyTorchsByNamesAndInitialBits) {
  at::manual_seed(1);
  const torch::nn::Linear theirs(7, 3);
  at::manual_seed(1);
  const Linear ours(7, 3);
  EXPECT_TRUE(torch::equal(ours->weight, theirs->weight));
  EXPECT_TRUE(torch::equal(ours->bias, theirs->bias));
  EXPECT_EQ(ours->named_parameters().keys(), theirs->named_parameters().keys());
  EXPECT_FALSE(Linear(LinearOptions(7, 3).bias(false))->bias.defined());
  std::ostringstream text;
  text << *ours;
  EXPECT_EQ(text.str(), "lockstep::nn::Linear(in_features=7, out_features=3, bias=true)");

  std::stringstream file;
  torch::save(theirs, file);
  Linear loaded(7, 3);
  torch::load(loaded, file);
  EXPECT_TRUE(torch::equal(loaded->weight, theirs->weight));
  const LinearImpl same(*theirs);
  EXPECT_TRUE(same.weight.is_same(theirs->weight));
}

TEST(Linear, ACloneIsOneOfOursWithItsOwnTensors) {
  const Linear from(LinearOptions(7, 3).bias(false));
  from->weight.set_requires_grad(false);
  const auto copy = std::dynamic_pointer_cast<LinearImpl>(from->clone());
  ASSERT_TRUE(copy);
  EXPECT_TRUE(torch::equal(copy->weight, from->weight));
  EXPECT_NE(copy->weight.data_ptr(), from->weight.data_ptr());
  EXPECT_FALSE(copy->weight.requires_grad());
  EXPECT_FALSE(copy->bias.defined());
}

TEST(Linear, WithoutAnEngineIsPyTorchs) {
  for (const std::vector<std::int64_t>& sizes :
       std::vector<std::vector<std::int64_t>>{{5, 6}, {6}, {2, 3, 6}, {0, 6}}) {
    std::vector<std::vector<at::Tensor>> found(2);
    const CountInPlace counted;
    for (const bool ours : {false, true}) {
      at::manual_seed(3);
      Net net(ours);
      at::Tensor x = inputs(sizes).requires_grad_(true);
      const at::Tensor y = net->forward(x);
      y.sum().backward();
      found[ours] = {y, x.grad()};
      for (const at::Tensor& parameter : net->parameters()) found[ours].push_back(parameter.grad());
    }
    for (std::size_t i = 0; i < found[0].size(); ++i) EXPECT_TRUE(torch::equal(found[0][i], found[1][i])) << i;
    EXPECT_EQ(counted.count(), 0);
  }
  Linear layer(6, 2);
  EXPECT_THAT(layer->forward(inputs()).grad_fn()->name(), HasSubstr("Addmm"));
  EXPECT_THROW(layer->forward(at::rand({5, 7})), c10::Error);
}

TEST(Linear, ItsGradientsAreComputedInTheirSlotsWithTheSameBits) {
  for (const std::vector<std::int64_t>& sizes : std::vector<std::vector<std::int64_t>>{
           {5, 6}, {1, 6}, {0, 6}, {2, 3, 6}, {1, 1, 6}, {2, 2, 3, 6}, {0, 3, 6}, {70, 6}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    for (const Amp amp : {Amp::none, Amp::bf16}) {
      const Step step = [&](Ddp& ddp, Net&, Found& found) {
        at::Tensor x = inputs(sizes).requires_grad_(true);
        const at::Tensor y = ddp(x);
        y.to(at::kFloat).sum().backward();
        found.tensors.push_back(y.detach());
        found.tensors.push_back(x.grad());
      };
      EXPECT_EQ(same_as_pytorchs(step, {.options = {.amp = amp}}), 3);
    }
  }
}

TEST(Linear, WhatItDoesNotComputeInPlaceIsRightToo) {
  // Neither one dimension nor rows that lie otherwise than one behind the other.
  const auto trained_on = [](const at::Tensor& x) {
    return [x](Ddp& ddp, Net&, Found&) { loss_of(ddp(x)).backward(); };
  };
  EXPECT_EQ(same_as_pytorchs(trained_on(inputs({6}))), 0);
  EXPECT_EQ(same_as_pytorchs(trained_on(inputs({6, 5}).t())), 2);
  EXPECT_EQ(same_as_pytorchs(trained_on(inputs({3, 5, 6}).transpose(0, 1))), 2);
}

TEST(Linear, OfFrozenParametersNothingIsComputed) {
  EXPECT_EQ(same_as_pytorchs(plain_step, {.prepare = [](Net& net) { net->fc2->weight.set_requires_grad(false); }}), 2);
  EXPECT_EQ(same_as_pytorchs(plain_step, {.prepare = [](Net& net) { net->fc2->bias.set_requires_grad(false); }}), 3);
  EXPECT_EQ(same_as_pytorchs(plain_step, {.prepare =
                                              [](Net& net) {
                                                net->fc1->weight.set_requires_grad(false);
                                                net->fc1->bias.set_requires_grad(false);
                                              }}),
            2);
  EXPECT_EQ(same_as_pytorchs(
                [](Ddp& ddp, Net& net, Found& found) {
                  plain_step(ddp, net, found);
                  net->fc2->weight.set_requires_grad(false);  // from the second step on
                },
                {.options = {.find_unused_parameters = true}}),
            (3 + 2 + 2) / 3.0);
}

TEST(Linear, WeightsDoNotDependOnTheRanks) {
  std::string alone;
  for (const int ranks : {1, 2, 4}) {
    std::string hash;
    support::run_ranks(ranks == 1 ? support::RankKind::single : support::RankKind::threads, ranks, [&](auto group) {
      const Step step = [](Ddp& ddp, Net&, Found&) {
        const at::Tensor all = inputs({4, 3, 6});
        for (int shard = ddp.local_shards().first; shard < ddp.local_shards().last; ++shard) {
          ddp.begin_shard(shard);
          loss_of(ddp(all[shard])).backward();
        }
      };
      const Job job{.options = {.shards = 4}, .group = group};
      const Found ours = train(true, step, job);
      EXPECT_EQ(ours.in_place, 3 * 3 * 4 / ranks);
      EXPECT_EQ(ours.weights, train(false, step, job).weights);
      if (group->rank() == 0) hash = ours.weights;
    });
    if (ranks == 1) alone = hash;
    EXPECT_EQ(hash, alone) << ranks;
  }
}

// Of a model that calls at::linear, as Python's F.linear.
struct ByFunction : torch::nn::Module {
  explicit ByFunction(bool ours, std::int64_t biases = 4) : is_ours(ours) {
    const at::NoGradGuard no_grad;
    auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
    weight = register_parameter("weight", at::empty({4, 6}).normal_(0, 0.3, generator));
    if (biases > 0) bias = register_parameter("bias", at::empty({biases}).normal_(0, 0.3, generator));
  }
  at::Tensor forward(const at::Tensor& x) {
    return is_ours ? lockstep::nn::linear(x, weight, bias) : at::linear(x, weight, bias);
  }

  bool is_ours;
  at::Tensor weight, bias;
};

TEST(Linear, AsAFunctionHasTheBitsOfPyTorchsAndItsGradientsInTheirSlots) {
  for (const std::vector<std::int64_t>& sizes :
       std::vector<std::vector<std::int64_t>>{{5, 6}, {2, 3, 6}, {1, 1, 6}, {64, 70, 6}, {2, 2, 3, 6}, {0, 3, 6}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    for (const std::int64_t biases : {4, 0, 1}) {
      SCOPED_TRACE(biases);
      std::vector<std::vector<at::Tensor>> found(2);
      for (const bool ours : {false, true}) {
        DistributedDataParallel ddp(std::make_shared<ByFunction>(ours, biases), std::make_shared<comm::SingleGroup>());
        optim::SGD optimizer(ddp, {.lr = 0.3, .momentum = 0.5});
        const CountInPlace counted;
        for (int i = 0; i < 3; ++i) {
          at::Tensor x = inputs(sizes).requires_grad_(true);
          const at::Tensor y = ddp(x);
          loss_of(y).backward();
          optimizer.step();
          found[ours].insert(found[ours].end(), {y.detach(), x.grad()});
        }
        EXPECT_EQ(counted.count(), ours && biases != 1 ? 3 : 0);  // a bias that is added to all of a row is PyTorch's
        for (const auto& [name, tensor] : ddp.state_dict()) found[ours].push_back(tensor.clone());
      }
      ASSERT_EQ(found[0].size(), found[1].size());
      for (std::size_t i = 0; i < found[0].size(); ++i) EXPECT_TRUE(torch::equal(found[0][i], found[1][i])) << i;
    }
  }
}

// As behind the attention of a vision transformer. Each of the products would make a copy of its own.
TEST(Linear, AsAFunctionCopiesATransposedGradientOnce) {
  static thread_local int clones;
  std::vector<std::vector<at::Tensor>> found(2);
  for (const bool ours : {false, true}) {
    DistributedDataParallel ddp(std::make_shared<ByFunction>(ours), std::make_shared<comm::SingleGroup>());
    optim::SGD optimizer(ddp, {.lr = 0.3});
    const at::Tensor y = ddp(inputs({2, 3, 6}));
    clones = 0;
    const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
      const auto name = function.operator_name();
      if (name && name->name == "aten::clone") ++clones;
      return std::unique_ptr<at::ObserverContext>();
    }));
    y.backward(inputs({3, 2, 4}).transpose(0, 1));
    at::removeCallback(handle);
    if (ours) EXPECT_EQ(clones, 1);
    optimizer.step();
    for (const auto& [name, tensor] : ddp.state_dict()) found[ours].push_back(tensor.clone());
  }
  ASSERT_EQ(found[0].size(), found[1].size());
  for (std::size_t i = 0; i < found[0].size(); ++i) EXPECT_TRUE(torch::equal(found[0][i], found[1][i])) << i;
}

// Behind the attention and in the perceptron of each layer. What goes into the head are rows with others between them.
TEST(Linear, AFusedVisionTransformerHasItsGradientsInTheirSlotsWithTheSameBits) {
  const models::VisionTransformerKind kind{.patch = 4, .layers = 2, .heads = 2, .width = 8, .hidden = 16};
  const models::ImageTask task{.channels = 3, .height = 8, .width = 8};
  std::vector<std::vector<at::Tensor>> found(2);
  for (const bool fused : {false, true}) {
    at::manual_seed(3);
    const std::shared_ptr<models::ImageModel> model = models::make_vision_transformer(kind, task);
    if (fused) fuse(*model);
    DistributedDataParallel ddp(model, std::make_shared<comm::SingleGroup>());
    optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.5});
    const CountInPlace counted;
    for (int i = 0; i < 3; ++i) {
      loss_of(ddp(inputs({3, 3, 8, 8}))).backward();
      optimizer.step();
    }
    EXPECT_EQ(counted.count(), fused ? 3 * 2 * 3 : 0);  // steps, layers, products
    for (const auto& [name, tensor] : ddp.state_dict()) found[fused].push_back(tensor.clone());
  }
  ASSERT_EQ(found[0].size(), found[1].size());
  for (std::size_t i = 0; i < found[0].size(); ++i) EXPECT_TRUE(torch::equal(found[0][i], found[1][i])) << i;
}

TEST(Linear, AsAFunctionIsPyTorchsWhereThereAreNoSlots) {
  ByFunction net(true);
  const CountInPlace counted;
  for (const auto& x : {inputs(), inputs({6}), inputs({3, 5, 6}).transpose(0, 1)}) {
    const at::Tensor y = net.forward(x);
    EXPECT_TRUE(torch::equal(y, at::linear(x, net.weight, net.bias)));
    y.sum().backward();
  }
  EXPECT_TRUE(torch::equal(lockstep::nn::linear(inputs(), net.weight, {}), at::linear(inputs(), net.weight)));
  EXPECT_EQ(counted.count(), 0);
}

TEST(Linear, FusePutsItInSequentials) {
  torch::nn::Sequential row(torch::nn::Linear(6, 3), Linear(3, 3), torch::nn::Linear(LinearOptions(3, 2).bias(false)));
  const auto before = row->named_parameters();
  std::ostringstream said;
  for (const Fusion& one : fuse(*row)) said << one << '\n';
  EXPECT_EQ(said.str(), "0: Linear -> lockstep::nn::Linear\n2: Linear -> lockstep::nn::Linear\n");
  EXPECT_TRUE(fuse(*row).empty());
  const auto after = row->named_parameters();
  EXPECT_EQ(after.keys(), before.keys());
  for (const auto& item : after) EXPECT_TRUE(item.value().is_same(before[item.key()]));
  DistributedDataParallel ddp(row, std::make_shared<comm::SingleGroup>());
  optim::SGD optimizer(ddp, {.lr = 0.1});
  const CountInPlace counted;
  ddp(inputs()).sum().backward();
  optimizer.step();
  EXPECT_EQ(counted.count(), 3);
}

}  // namespace
}  // namespace lockstep::nn
