// The fused layers beside PyTorch's separate operators: the same function, no larger errors, the same state.

#include "lockstep/nn/batch_norm_relu.h"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/serialize.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/amp/autocast.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/parallel/sync_batch_norm.h"

namespace lockstep::nn {
namespace {

using torch::nn::BatchNorm2dOptions;

enum class Kind { relu, add, halving, stem };

at::Tensor plain_behind(Kind kind, const at::Tensor& normalized, const at::Tensor& added) {
  switch (kind) {
    case Kind::relu:
      return at::relu(normalized);
    case Kind::add:
      return at::relu(normalized + added);
    case Kind::halving:
      return at::max_pool2d(at::relu(normalized), 2);
    case Kind::stem:
      return at::max_pool2d(at::relu(normalized), 3, 2, 1);
  }
  return {};
}

// A layer of any kind, ours or PyTorch's operators in a row.
struct Layer {
  Layer(Kind the_kind, bool fused, const BatchNorm2dOptions& options) : kind(the_kind), ours(fused) {
    if (!ours)
      norm = std::make_shared<torch::nn::BatchNorm2dImpl>(options);
    else if (kind == Kind::relu)
      norm = std::make_shared<BatchNormReLU2dImpl>(options);
    else if (kind == Kind::add)
      norm = std::make_shared<BatchNormAddReLU2dImpl>(options);
    else
      norm = std::make_shared<BatchNormReLUMaxPool2dImpl>(options,
                                                          kind == Kind::halving ? Pooling::halving : Pooling::stem);
    const at::NoGradGuard no_grad;
    const std::int64_t channels = options.num_features();
    if (options.affine()) {
      norm->weight.copy_(at::linspace(-0.5, 1.5, channels));
      norm->bias.copy_(at::linspace(1, -0.5, channels));
    }
  }

  at::Tensor operator()(const at::Tensor& x, const at::Tensor& added) const {
    if (!ours) return plain_behind(kind, norm->forward(x), added);
    if (auto* relu = dynamic_cast<BatchNormReLU2dImpl*>(norm.get())) return relu->forward(x);
    if (auto* add = dynamic_cast<BatchNormAddReLU2dImpl*>(norm.get())) return add->forward(x, added);
    return dynamic_cast<BatchNormReLUMaxPool2dImpl&>(*norm).forward(x);
  }

  Kind kind;
  bool ours;
  std::shared_ptr<torch::nn::BatchNorm2dImpl> norm;
};

struct Case {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  double middle = 0.3;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
      for (const std::vector<std::int64_t>& sizes : std::vector<std::vector<std::int64_t>>{{8, 32, 14, 14},
                                                                                           {3, 5, 7, 6},
                                                                                           {2, 87, 9, 5},
                                                                                           {1, 1, 6, 21},
                                                                                           {5, 16, 1, 1},
                                                                                           {2, 3, 33, 2},
                                                                                           {2, 64, 9, 8}})
        all.push_back({sizes, dtype, format});
  all.push_back({{4, 16, 12, 12}, at::kFloat, at::MemoryFormat::ChannelsLast, 200});
  all.push_back({{4, 6, 12, 12}, at::kFloat, at::MemoryFormat::Contiguous, 200});
  return all;
}

std::string words(const Case& one, Kind kind) {
  std::ostringstream text;
  text << "kind " << int(kind) << ", " << c10::toString(one.dtype) << ", " << one.format << ", sizes "
       << at::IntArrayRef(one.sizes) << ", around " << one.middle;
  return text.str();
}

struct Inputs {
  explicit Inputs(const Case& one) {
    at::manual_seed(7);
    const auto draw = [&](double middle) {
      return (at::randn(one.sizes) + middle).to(one.dtype).contiguous(one.format);
    };
    x = draw(one.middle).requires_grad_(true);
    added = draw(0).requires_grad_(true);
  }
  at::Tensor x, added;
};

// Outputs and gradients of one pass.
std::vector<at::Tensor> pass(const Layer& layer, const at::Tensor& x, const at::Tensor& added) {
  const at::Tensor y = layer(x, added);
  at::manual_seed(8);
  const at::Tensor dy = at::randn(y.sizes()).to(at::kBFloat16).to(y.scalar_type());
  std::vector<at::Tensor> of{x};
  if (layer.kind == Kind::add) of.push_back(added);
  for (const at::Tensor& parameter : layer.norm->parameters()) of.push_back(parameter);
  std::vector<at::Tensor> found = torch::autograd::grad({y}, of, {dy});
  found.push_back(y.detach());
  for (const at::Tensor& buffer : layer.norm->buffers()) found.push_back(buffer);
  return found;
}

double error_of(const at::Tensor& found, const at::Tensor& exact) {
  return (found.to(at::kDouble) - exact.to(at::kDouble)).norm().item<double>();
}

TEST(BatchNormReLU, ErrorsAreNoLargerThanPyTorchs) {
  for (const Kind kind : {Kind::relu, Kind::add, Kind::halving, Kind::stem})
    for (const Case& one : cases()) {
      if (kind == Kind::halving && (one.sizes[2] < 2 || one.sizes[3] < 2)) continue;
      SCOPED_TRACE(words(one, kind));
      const Inputs inputs(one);
      const BatchNorm2dOptions options(one.sizes[1]);
      const Layer ours(kind, true, options), theirs(kind, false, options), exact(kind, false, options);
      exact.norm->to(at::kDouble);
      const auto mine = pass(ours, inputs.x, inputs.added);
      const auto plain = pass(theirs, inputs.x, inputs.added);
      const auto right = pass(exact, inputs.x.detach().to(at::kDouble).requires_grad_(true),
                              inputs.added.detach().to(at::kDouble).requires_grad_(true));
      ASSERT_EQ(mine.size(), plain.size());
      for (std::size_t i = 0; i < mine.size(); ++i) {
        SCOPED_TRACE("result " + std::to_string(i));
        EXPECT_EQ(mine[i].scalar_type(), plain[i].scalar_type());
        ASSERT_EQ(mine[i].sizes(), plain[i].sizes());
        // A number of a channel may lie a few units in its last place aside, and PyTorch's by luck in none.
        const double units = right[i].dim() == 4 ? 1e-7 : 4e-7;
        const double roundings = units * right[i].to(at::kDouble).norm().item<double>();
        EXPECT_LE(error_of(mine[i], right[i]), 1.5 * error_of(plain[i], right[i]) + roundings);
      }
      EXPECT_EQ(mine[0].strides(), inputs.x.strides());
    }
}

TEST(BatchNormReLU, ThreadsChangeNoBit) {
  for (const Kind kind : {Kind::relu, Kind::add, Kind::halving, Kind::stem})
    for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const Inputs inputs(Case{{9, 24, 30, 31}, at::kFloat, format});
      const int before = at::get_num_threads();
      std::vector<at::Tensor> found[2];
      for (const int threads : {1, 3}) {
        at::set_num_threads(threads);
        found[threads == 3] = pass(Layer(kind, true, BatchNorm2dOptions(24)), inputs.x, inputs.added);
      }
      at::set_num_threads(before);
      for (std::size_t i = 0; i < found[0].size(); ++i) EXPECT_TRUE(torch::equal(found[0][i], found[1][i]));
    }
}

// What only options change: running statistics by another rule or not at all, no weights.
TEST(BatchNormReLU, OptionsMeanWhatTheyMeanForBatchNorm) {
  const Inputs inputs(Case{{6, 5, 8, 9}});
  for (const BatchNorm2dOptions& options :
       {BatchNorm2dOptions(5).momentum(std::nullopt), BatchNorm2dOptions(5).momentum(0.3).eps(0.1),
        BatchNorm2dOptions(5).track_running_stats(false), BatchNorm2dOptions(5).affine(false)})
    for (const bool training : {true, false}) {
      const Layer ours(Kind::relu, true, options), theirs(Kind::relu, false, options);
      std::vector<at::Tensor> mine, plain;
      for (int step = 0; step < 3; ++step) {
        mine = pass(ours, inputs.x * (step + 1), inputs.added);
        plain = pass(theirs, inputs.x * (step + 1), inputs.added);
      }
      ours.norm->train(training);
      theirs.norm->train(training);
      mine = pass(ours, inputs.x, inputs.added);
      plain = pass(theirs, inputs.x, inputs.added);
      const at::NoGradGuard no_grad;
      mine.push_back(ours(inputs.x, {}));
      plain.push_back(theirs(inputs.x, {}));
      for (std::size_t i = 0; i < mine.size(); ++i)
        EXPECT_TRUE(torch::allclose(mine[i], plain[i], 1e-4, 1e-5)) << i << '\n' << mine[i] << plain[i];
    }
}

TEST(BatchNormReLU, EvaluationFoldsTheStatistics) {
  for (const Kind kind : {Kind::relu, Kind::add, Kind::halving, Kind::stem}) {
    const Inputs inputs(Case{{6, 20, 8, 9}, at::kFloat, at::MemoryFormat::ChannelsLast});
    const Layer ours(kind, true, BatchNorm2dOptions(20)), theirs(kind, false, BatchNorm2dOptions(20));
    for (const Layer* layer : {&ours, &theirs}) {
      pass(*layer, inputs.x, inputs.added);
      layer->norm->eval();
    }
    const auto with = pass(ours, inputs.x, inputs.added), plain = pass(theirs, inputs.x, inputs.added);
    for (std::size_t i = 0; i < with.size(); ++i) EXPECT_TRUE(torch::allclose(with[i], plain[i], 1e-4, 1e-5)) << i;
    const c10::InferenceMode inference;
    EXPECT_TRUE(torch::allclose(ours(inputs.x, inputs.added), theirs(inputs.x, inputs.added), 1e-5, 1e-6));
  }
}

TEST(BatchNormReLU, GradientsOfGradientsAreThoseOfTheSeparateOperators) {
  for (const Kind kind : {Kind::relu, Kind::add, Kind::halving, Kind::stem}) {
    std::vector<at::Tensor> found[2];
    for (const bool fused : {false, true}) {
      const Inputs inputs(Case{{3, 4, 8, 9}, at::kFloat, at::MemoryFormat::ChannelsLast});
      const Layer layer(kind, fused, BatchNorm2dOptions(4));
      const at::Tensor y = layer(inputs.x, inputs.added);
      const auto first =
          torch::autograd::grad({y.square().sum()}, {inputs.x, layer.norm->weight}, {}, true, /*create_graph=*/true);
      found[fused] = torch::autograd::grad({first[0].pow(3).sum() + first[1].square().sum()},
                                           {inputs.x, layer.norm->weight, layer.norm->bias});
      found[fused].push_back(first[0].detach());
      found[fused].push_back(first[1].detach());
    }
    for (std::size_t i = 0; i < found[0].size(); ++i) {
      const double rounding = 1e-4 + 1e-6 * found[0][i].abs().max().item<double>();  // where large terms cancel
      EXPECT_TRUE(torch::allclose(found[1][i], found[0][i], 1e-3, rounding)) << int(kind) << ' ' << i;
    }
  }
}

TEST(BatchNormReLU, BatchesThatAreNoneAndErrorsArePyTorchs) {
  BatchNormReLU2d ours(3);
  EXPECT_EQ(ours(at::ones({0, 3, 4, 4})).sizes(), at::IntArrayRef({0, 3, 4, 4}));
  const auto error_of_call = [](auto layer, const at::Tensor& x) -> std::string {
    try {
      layer->forward(x);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "none";
  };
  for (const at::Tensor& x : {at::ones({1, 3, 1, 1}), at::ones({2, 3}), at::ones({2, 4, 5, 5})})
    EXPECT_EQ(error_of_call(BatchNormReLU2d(3), x), error_of_call(torch::nn::BatchNorm2d(3), x));
  EXPECT_NE(error_of_call(BatchNormReLU2d(3), at::ones({2, 4, 5, 5})), "none");
}

TEST(BatchNormReLU, OtherDtypesAndSizesGoBySeparateOperators) {
  const at::Tensor x = at::randn({4, 3, 8, 8}, at::kDouble), small = at::randn({2, 3, 4, 5});
  BatchNormReLU2d ours(3);
  ours->to(at::kDouble);
  torch::nn::BatchNorm2d plain(3);
  plain->to(at::kDouble);
  EXPECT_TRUE(torch::equal(ours(x), at::relu(plain(x))));
  EXPECT_TRUE(torch::equal(BatchNormReLUMaxPool2d(BatchNorm2dOptions(3), Pooling::halving)(small),
                           at::max_pool2d(at::relu(torch::nn::BatchNorm2d(3)(small)), 2)));
  const at::Tensor row = at::randn({1, 3, 1, 8}).to(at::kFloat), picture = x.to(at::kFloat);
  EXPECT_TRUE(torch::allclose(BatchNormAddReLU2d(3)(picture, row), at::relu(torch::nn::BatchNorm2d(3)(picture) + row)));
}

TEST(BatchNormReLU, NotANumberGoesThrough) {
  for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
    for (const Kind kind : {Kind::relu, Kind::halving, Kind::stem}) {
      at::Tensor x = at::zeros({1, 2, 8, 8}).contiguous(format);
      x[0][1][2][3] = std::nan("");
      Layer layer(kind, true, BatchNorm2dOptions(2));
      layer.norm->eval();
      const at::NoGradGuard no_grad;
      const at::Tensor y = layer(x, {});
      EXPECT_TRUE(y[0][1].isnan().any().item<bool>());
      EXPECT_FALSE(y[0][0].isnan().any().item<bool>());
      layer.norm->train();
      EXPECT_TRUE(layer(x, {})[0][1].isnan().all().item<bool>());
    }
}

TEST(BatchNormReLU, StateAndClonesAreThoseOfBatchNorm) {
  BatchNormReLUMaxPool2d ours(BatchNorm2dOptions(4).momentum(0.2), Pooling::stem);
  torch::nn::BatchNorm2d plain(BatchNorm2dOptions(4).momentum(0.2));
  ours(at::randn({3, 4, 9, 8}));
  std::stringstream file;
  torch::serialize::OutputArchive out;
  ours->save(out);
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  plain->load(in);
  EXPECT_TRUE(torch::equal(plain->running_var, ours->running_var));
  EXPECT_EQ(plain->named_buffers().keys(), ours->named_buffers().keys());

  ours->bias.set_requires_grad(false);
  ours->eval();
  const auto copy = std::dynamic_pointer_cast<BatchNormReLUMaxPool2dImpl>(ours->clone());
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->pooling(), Pooling::stem);
  EXPECT_EQ(copy->options.momentum(), 0.2);
  EXPECT_TRUE(!copy->is_training() && copy->weight.requires_grad() && !copy->bias.requires_grad());
  EXPECT_TRUE(torch::equal(copy->running_var, ours->running_var));
  EXPECT_NE(copy->running_var.data_ptr(), ours->running_var.data_ptr());
  std::ostringstream text;
  text << *ours;
  EXPECT_EQ(text.str(),
            "lockstep::nn::BatchNormReLUMaxPool2d(4, eps=1e-05, momentum=0.2, affine=true, track_running_stats=true, "
            "3x3, stride=2, padding=1)");
}

// A converted layer normalises over the ranks: that is an operator's work, so it must not be fused past.
TEST(BatchNormReLU, AConvertedLayerStaysConverted) {
  const auto group = std::make_shared<comm::SingleGroup>();
  BatchNormReLU2d ours(3), converted(3);
  parallel::convert_sync_batchnorm(converted, group);
  const at::Tensor x = at::randn({4, 3, 8, 8});
  const at::Tensor y = converted(x);
  EXPECT_EQ(std::string(y.grad_fn()->name()), "ReluBackward0");
  EXPECT_NE(std::string(ours(x).grad_fn()->name()), "ReluBackward0");
  EXPECT_TRUE(torch::allclose(ours(x), y, 1e-5, 1e-6));
}

TEST(BatchNormReLU, AutocastLeavesTheDtypeOfPictures) {
  const amp::Autocast autocast(amp::AutocastOptions{.dtype = at::kBFloat16});
  BatchNormReLU2d layer(3);
  EXPECT_EQ(layer(at::randn({4, 3, 8, 8})).scalar_type(), at::kFloat);
  const at::Tensor x = at::randn({4, 3, 8, 8}).to(at::kBFloat16).requires_grad_(true);
  const at::Tensor y = layer(x);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
  EXPECT_EQ(layer->weight.grad().scalar_type(), at::kFloat);
}

thread_local std::vector<std::string> recorded_names;

std::unique_ptr<at::ObserverContext> record_name(const at::RecordFunction& function) {
  recorded_names.emplace_back(function.name());
  return nullptr;
}

// Without, their time would be nobody's.
TEST(BatchNormReLU, ProfilersAreToldOfIt) {
  BatchNormReLUMaxPool2d layer(BatchNorm2dOptions(3), Pooling::halving);
  const at::Tensor x = at::randn({4, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&record_name));
  layer(x).sum().backward();
  layer->eval();
  {
    const at::NoGradGuard no_grad;
    layer(x);
  }
  at::removeCallback(handle);
  const auto times = [](const std::string& name) {
    return std::count(recorded_names.begin(), recorded_names.end(), name);
  };
  EXPECT_EQ(times("lockstep::batch_norm_relu"), 2);
  EXPECT_EQ(times("lockstep::batch_norm_relu_backward"), 1);
  recorded_names.clear();
}

}  // namespace
}  // namespace lockstep::nn
