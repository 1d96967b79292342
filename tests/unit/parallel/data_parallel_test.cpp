// DataParallel on several replicas on the CPU, against a loop over the chunks.

#include "lockstep/parallel/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <chrono>
#include <map>
#include <string>

#include "lockstep/amp/autocast.h"
#include "tests/support/usage_error.h"

namespace lockstep::parallel {
namespace {

using ::testing::HasSubstr;

std::vector<at::Device> cpus(int count) { return std::vector<at::Device>(std::size_t(count), at::kCPU); }

struct ChunkNetImpl : torch::nn::Cloneable<ChunkNetImpl> {
  explicit ChunkNetImpl(double the_dropout = 0) : drop(the_dropout) { ChunkNetImpl::reset(); }
  void reset() override {
    fc = register_module("fc", torch::nn::Linear(3, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    dropout = register_module("dropout", torch::nn::Dropout(drop));
    out = register_module("out", torch::nn::Linear(8, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return out(dropout(torch::relu(norm(fc(x))))); }
  double drop;
  torch::nn::Linear fc{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(ChunkNet);

ChunkNet chunk_net(double dropout = 0) {
  torch::manual_seed(0);
  return ChunkNet(dropout);
}

at::Tensor samples(std::int64_t count) {
  torch::manual_seed(count);
  return at::rand({count, 3});
}

// What a model of one device does with one chunk after the other. Statistics are the first chunk's.
at::Tensor loop_over_chunks(ChunkNet net, const at::Tensor& x, std::int64_t devices) {
  std::vector<at::Tensor> outputs;
  const auto chunks = x.chunk(devices);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const at::Tensor mean = net->norm->running_mean.clone(), var = net->norm->running_var.clone();
    outputs.push_back(net->forward(chunks[i]));
    if (i == 0) continue;
    const torch::NoGradGuard no_grad;
    net->norm->running_mean.set_data(mean);
    net->norm->running_var.set_data(var);
    if (net->norm->is_training()) net->norm->num_batches_tracked -= 1;
  }
  return at::cat(outputs);
}

void expect_same_tensors(const ChunkNet& a, const ChunkNet& b, double tolerance) {
  const auto theirs = b->named_parameters();
  for (const auto& item : a->named_parameters()) {
    EXPECT_TRUE(torch::allclose(item.value(), theirs[item.key()], tolerance, tolerance)) << item.key();
    ASSERT_EQ(item.value().grad().defined(), theirs[item.key()].grad().defined()) << item.key();
    if (!item.value().grad().defined()) continue;
    EXPECT_TRUE(torch::allclose(item.value().grad(), theirs[item.key()].grad(), tolerance, tolerance)) << item.key();
  }
  const auto buffers = b->named_buffers();
  for (const auto& item : a->named_buffers())
    EXPECT_TRUE(torch::equal(item.value(), buffers[item.key()])) << item.key();
}

TEST(DataParallel, IsALoopOverTheChunks) {
  for (const std::int64_t count : {12, 11, 3}) {  // on four: equal chunks, a smaller last one, fewer than devices
    ChunkNet net = chunk_net(), looped = chunk_net();
    const bool training = count != 3;  // then a chunk has one sample, of which there are no statistics
    net->train(training);
    looped->train(training);
    DataParallel model(net, cpus(4));
    for (int pass = 0; pass < 2; ++pass) {  // gradients add up
      const at::Tensor x = samples(count).requires_grad_(true), y = samples(count).requires_grad_(true);
      const at::Tensor ours = model(x), theirs = loop_over_chunks(looped, y, 4);
      EXPECT_TRUE(torch::equal(ours, theirs));
      ours.pow(2).sum().backward();
      theirs.pow(2).sum().backward();
      EXPECT_TRUE(torch::allclose(x.grad(), y.grad()));
    }
    expect_same_tensors(net, looped, 1e-5);
  }
}

TEST(DataParallel, TrainsAsTheLoopWithTheSameBitsInEveryRun) {
  const auto trained = [](auto&& forward, ChunkNet net) {
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(forward(samples(9)), at::arange(9).remainder(2)).backward();
      optimizer.step();
    }
    return net;
  };
  const auto in_parallel = [&] {
    ChunkNet net = chunk_net();
    DataParallel model(net, cpus(3));
    return trained(model, net);
  };
  ChunkNet looped = chunk_net(), net = in_parallel();
  trained([&](const at::Tensor& x) { return loop_over_chunks(looped, x, 3); }, looped);
  const auto theirs = looped->named_parameters(), again = in_parallel()->named_parameters();
  for (const auto& item : net->named_parameters()) {
    EXPECT_TRUE(torch::allclose(item.value(), theirs[item.key()], 1e-4, 1e-5)) << item.key();
    EXPECT_TRUE(torch::equal(item.value(), again[item.key()])) << item.key();
  }
}

TEST(DataParallel, FrozenParametersAndModesAreFollowed) {
  ChunkNet net = chunk_net(), looped = chunk_net();
  DataParallel model(net, cpus(2));
  for (ChunkNet one : {net, looped}) {
    one->norm->eval();  // and the rest in training mode
    one->fc->weight.set_requires_grad(false);
  }
  model(samples(6)).sum().backward();
  loop_over_chunks(looped, samples(6), 2).sum().backward();
  expect_same_tensors(net, looped, 1e-5);
  EXPECT_FALSE(net->fc->weight.grad().defined());
}

TEST(DataParallel, AModelWhoseLayersHaveChangedIsRefused) {
  const auto change = [](const std::function<void(torch::nn::Sequential&)>& edit) {
    torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Linear(3, 2));
    DataParallel model(net, cpus(2));
    edit(net);
    try {
      model(at::ones({4, 3}));
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto refused = ::testing::HasSubstr("make a new DataParallel of it");
  EXPECT_EQ(change([](auto& net) {}), "accepted");
  EXPECT_THAT(change([](auto& net) { net->register_buffer("late", at::ones({1})); }), refused);
  EXPECT_THAT(change([](auto& net) { net->push_back(torch::nn::Linear(2, 2)); }), refused);
  EXPECT_THAT(change([](auto& net) { net->replace_module("1", torch::nn::Identity()); }), refused);
}

TEST(DataParallel, DropoutInOrderDrawsAsTheLoop) {
  ChunkNet net = chunk_net(0.5), looped = chunk_net(0.5);
  DataParallel model(net, cpus(4), {.in_order = true});
  torch::manual_seed(5);
  const at::Tensor x = at::rand({12, 3});
  torch::manual_seed(6);
  const at::Tensor ours = model(x);
  torch::manual_seed(6);
  EXPECT_TRUE(torch::equal(ours, loop_over_chunks(looped, x, 4)));
  DataParallel free_order(net, cpus(4));
  free_order(x).sum().backward();  // draws, too
  EXPECT_TRUE(net->fc->weight.grad().isfinite().all().item<bool>());
}

TEST(DataParallel, GradModeAndInferenceModeHoldInReplicas) {
  ChunkNet net = chunk_net();
  net->eval();
  DataParallel model(net, cpus(3));
  const at::Tensor wanted = model(samples(9));
  EXPECT_TRUE(wanted.requires_grad());
  {
    const torch::NoGradGuard no_grad;
    const at::Tensor found = model(samples(9));
    EXPECT_FALSE(found.requires_grad());
    EXPECT_TRUE(torch::equal(found, wanted));
  }
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(model(samples(9)).is_inference());
  }
  model(samples(9)).sum().backward();
  EXPECT_TRUE(net->fc->weight.grad().defined());
}

TEST(DataParallel, AutocastHoldsInReplicas) {
  ChunkNet net = chunk_net(), looped = chunk_net();
  DataParallel model(net, cpus(3));
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    at::Tensor ours, theirs;
    {
      const amp::Autocast autocast(amp::AutocastOptions{.dtype = dtype});
      ours = model(samples(9));
      theirs = loop_over_chunks(looped, samples(9), 3);
    }
    EXPECT_EQ(ours.scalar_type(), dtype);
    EXPECT_TRUE(torch::equal(ours, theirs));
    ours.to(at::kFloat).sum().backward();
    EXPECT_EQ(net->fc->weight.grad().scalar_type(), at::kFloat);
  }
  EXPECT_EQ(model(samples(9)).scalar_type(), at::kFloat) << "it does not stay";
}

// Waits until `all` threads have come at the same time.
class Meeting {
 public:
  explicit Meeting(int all) : all_(all) {}
  bool come() {
    std::unique_lock lock(mutex_);
    ++here_;
    met_.notify_all();
    return met_.wait_for(lock, std::chrono::seconds(20), [&] { return here_ >= all_; });
  }

 private:
  const int all_;
  int here_ = 0;
  std::mutex mutex_;
  std::condition_variable met_;
};

TEST(DataParallel, ForwardAndBackwardOfAllReplicasRunAtOnce) {
  struct Meets : torch::nn::Cloneable<Meets> {
    Meets(Meeting& the_forward, Meeting& the_backward)
        : forward_meeting(&the_forward), backward_meeting(&the_backward) {
      Meets::reset();
    }
    void reset() override { fc = register_module("fc", torch::nn::Linear(3, 1)); }
    at::Tensor forward(const at::Tensor& x) {
      EXPECT_TRUE(forward_meeting->come());
      at::Tensor y = fc(x);
      y.register_hook([this](const at::Tensor& gradient) {
        EXPECT_TRUE(backward_meeting->come());
        return gradient;
      });
      return y;
    }
    Meeting* forward_meeting;
    Meeting* backward_meeting;
    torch::nn::Linear fc{nullptr};
  };
  Meeting forward(3), backward(3);
  DataParallel model(std::make_shared<Meets>(forward, backward), cpus(3));
  model(samples(6)).sum().backward();
  EXPECT_TRUE(model.module()->fc->weight.grad().defined());
}

struct Nested : torch::nn::Cloneable<Nested> {
  using Map = std::map<std::string, std::vector<at::Tensor>>;
  Nested() { Nested::reset(); }
  void reset() override { fc = register_module("fc", torch::nn::Linear(3, 2)); }
  std::pair<Map, std::optional<at::Tensor>> forward(const Map& inputs, int times, std::optional<at::Tensor> none) {
    EXPECT_FALSE(none && none->defined());
    const at::Tensor y = fc(inputs.at("x")[0]) * times;
    return {{{"y", {y, inputs.at("x")[1] + 1}}, {"loss", {y.sum()}}}, at::Tensor()};
  }
  torch::nn::Linear fc{nullptr};
};

TEST(DataParallel, InputsAndOutputsAreNested) {
  const auto net = std::make_shared<Nested>();
  DataParallel model(net, cpus(2));
  const at::Tensor x = samples(5);
  const auto [map, none] = model(Nested::Map{{"x", {x, at::arange(5)}}}, 3, std::optional<at::Tensor>(at::Tensor()));
  EXPECT_FALSE(none->defined());
  EXPECT_TRUE(torch::allclose(map.at("y")[0], net->fc(x) * 3));
  EXPECT_TRUE(torch::equal(map.at("y")[1], at::arange(5) + 1)) << "integers have no gradients";
  EXPECT_EQ(map.at("loss")[0].sizes(), (std::vector<std::int64_t>{2})) << "a number of each replica";
  (map.at("y")[0].sum() + map.at("loss")[0].sum()).backward();
  EXPECT_TRUE(torch::allclose(net->fc->bias.grad(), at::full({2}, 2.0f * 5 * 3)));
}

TEST(DataParallel, CutsAndJoinsAlongAnotherDimension) {
  struct Columns : torch::nn::Cloneable<Columns> {
    void reset() override {}
    at::Tensor forward(const at::Tensor& x) { return x * 2; }
  };
  DataParallel model(std::make_shared<Columns>(), cpus(2), {.dim = 1});
  const at::Tensor x = at::rand({2, 5}).requires_grad_(true);
  const at::Tensor y = model(x);
  EXPECT_TRUE(torch::equal(y, x * 2));
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), at::full({2, 5}, 2.0f)));
}

TEST(DataParallel, GraphsObeyAutogradsRules) {
  ChunkNet net = chunk_net();
  net->eval();
  DataParallel model(net, cpus(2));
  const at::Tensor both = model(samples(4)).sum() + model(samples(6)).sum();  // two graphs, one backward
  both.backward({}, /*retain_graph=*/true);
  const at::Tensor once = net->fc->weight.grad().clone();
  both.backward();
  EXPECT_TRUE(torch::allclose(net->fc->weight.grad(), once * 2));
  EXPECT_ANY_THROW(both.backward()) << "the graph is gone";
  const at::Tensor stale = model(samples(4)).sum();
  {
    const torch::NoGradGuard no_grad;
    net->fc->weight.mul_(2);
  }
  EXPECT_ANY_THROW(stale.backward()) << "a weight was edited since";
  const at::Tensor x = samples(4).requires_grad_(true);
  const at::Tensor gradient = torch::autograd::grad({model(x).pow(2).sum()}, {x}, {}, {}, /*create_graph=*/true)[0];
  EXPECT_ANY_THROW(gradient.sum().backward()) << "it cannot be differentiated again";
}

// No clone(), but a function that makes it.
struct Uncloneable : torch::nn::Module {
  explicit Uncloneable(std::int64_t width) : fc(register_module("fc", torch::nn::Linear(3, width))) {}
  at::Tensor forward(const at::Tensor& x) {
    if (x.size(0) == 1) throw std::runtime_error("one sample");
    return fc(x);
  }
  torch::nn::Linear fc;
};
using UncloneablePointer = std::shared_ptr<Uncloneable>;

TEST(DataParallel, ReplicasMayComeFromAFunction) {
  const auto net = std::make_shared<Uncloneable>(2);
  DataParallel<UncloneablePointer> model(net, cpus(2), [](at::Device) { return std::make_shared<Uncloneable>(2); });
  EXPECT_TRUE(torch::allclose(model(samples(4)), net->fc(samples(4))));
  EXPECT_THAT(testing::usage_error([&] {
                DataParallel<UncloneablePointer>(net, cpus(2),
                                                 [](at::Device) { return std::make_shared<Uncloneable>(4); });
              }),
              HasSubstr("DataParallel: 'fc.weight' of replica 0 is [4, 3] on cpu, must be [2, 3] on cpu"));
  EXPECT_THAT(testing::usage_error([&] { DataParallel(net, cpus(2)); }),
              ::testing::AllOf(HasSubstr("cannot be copied"), HasSubstr("torch::nn::Cloneable")));
}

TEST(DataParallel, WhatAReplicaThrowsReachesTheCaller) {
  const auto net = std::make_shared<Uncloneable>(2);
  DataParallel<UncloneablePointer> model(net, cpus(2), [](at::Device) { return std::make_shared<Uncloneable>(2); });
  EXPECT_THROW(model(samples(3)), std::runtime_error);
  EXPECT_TRUE(model(samples(4)).defined()) << "and it goes on";
}

TEST(DataParallel, RefusesInputsThatDoNotFit) {
  struct Sum : torch::nn::Cloneable<Sum> {
    void reset() override {}
    at::Tensor forward(const at::Tensor& a, const at::Tensor& b) { return a + b; }
  };
  DataParallel model(std::make_shared<Sum>(), cpus(4));
  EXPECT_THAT(testing::usage_error([&] {
                model(at::ones({8, 1}), at::ones({3, 1}));
              }),
              HasSubstr("a tensor of [3, 1] comes to 3 chunks, one before it to 4"));
  EXPECT_THAT(testing::usage_error([&] { model(at::ones({8}), at::ones({})); }), HasSubstr("has no dimension 0"));
  EXPECT_THAT(testing::usage_error([&] { DataParallel(std::make_shared<Sum>(), {}); }), HasSubstr("no devices"));
  EXPECT_EQ(model(at::ones({0, 1}), at::ones({0, 1})).numel(), 0) << "no samples, one replica";
}

TEST(DataParallelFunctions, ScatterAndGatherAreInverse) {
  const std::pair<at::Tensor, int> value{at::arange(7), 3};
  const auto parts = scatter(value, cpus(3));
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_TRUE(torch::equal(parts[2].first, at::tensor({6})));
  EXPECT_EQ(parts[1].second, 3);
  EXPECT_TRUE(torch::equal(gather(parts, at::kCPU).first, value.first));
  EXPECT_TRUE(torch::equal(gather(std::vector{at::ones({}), at::zeros({})}, at::kCPU), at::tensor({1.0f, 0.0f})));
}

TEST(DataParallelFunctions, TogetherAreTheLoop) {
  ChunkNet net = chunk_net(), looped = chunk_net();
  net->eval();
  looped->eval();
  const std::vector<ChunkNet> replicas = replicate(net, cpus(2));
  const auto outputs = parallel_apply(replicas, scatter(std::tuple(samples(5)), cpus(2)));
  const at::Tensor whole = gather(outputs, at::kCPU);
  EXPECT_TRUE(torch::equal(whole, looped->forward(samples(5))));
  whole.pow(2).sum().backward();
  loop_over_chunks(looped, samples(5), 2).pow(2).sum().backward();
  expect_same_tensors(net, looped, 1e-5);
  EXPECT_TRUE(torch::equal(data_parallel(net, cpus(2), {}, samples(5)), whole));
}

}  // namespace
}  // namespace lockstep::parallel
