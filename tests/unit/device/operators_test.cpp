// Operators, modules and autograd on the stand-in device, beside the CPU.

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "lockstep/models/registry.h"
#include "tests/support/device/sim_device.h"

namespace lockstep::testing {
namespace {

class SimOperators : public ::testing::Test {
 protected:
  void SetUp() override { sim::install(2); }
};

struct Trained {
  std::vector<double> losses;
  std::vector<at::Tensor> state;  // parameters, gradients, buffers
};

// Three steps of SGD with momentum from the same weights, on one device.
Trained train(const std::function<std::shared_ptr<torch::nn::Module>()>& make,
              const std::function<at::Tensor(torch::nn::Module&, const at::Tensor&)>& forward, at::IntArrayRef shape,
              at::Device device) {
  torch::manual_seed(1);
  const std::shared_ptr<torch::nn::Module> model = make();
  const at::Tensor pictures = torch::randn(shape);
  const at::Tensor labels = torch::randint(0, 10, {shape[0]}, torch::kLong);
  model->to(device);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-4));
  Trained trained;
  for (int step = 0; step < 3; ++step) {
    sgd.zero_grad();
    const at::Tensor loss =
        torch::nll_loss(torch::log_softmax(forward(*model, pictures.to(device)), 1), labels.to(device));
    loss.backward();
    sgd.step();
    trained.losses.push_back(loss.item<double>());
  }
  for (const at::Tensor& parameter : model->parameters()) {
    trained.state.push_back(parameter.detach().cpu());
    trained.state.push_back(parameter.grad().cpu());
    EXPECT_EQ(parameter.device(), device);
    EXPECT_EQ(parameter.grad().device(), device);
  }
  for (const at::Tensor& buffer : model->buffers()) trained.state.push_back(buffer.cpu());
  return trained;
}

void expect_same_bits(const Trained& one, const Trained& other) {
  EXPECT_EQ(one.losses, other.losses);
  ASSERT_EQ(one.state.size(), other.state.size());
  for (std::size_t i = 0; i < one.state.size(); ++i) EXPECT_TRUE(at::equal(one.state[i], other.state[i])) << i;
}

std::shared_ptr<torch::nn::Module> small_net() {
  return torch::nn::Sequential(torch::nn::Linear(20, 16), torch::nn::ReLU(), torch::nn::Linear(16, 10)).ptr();
}

at::Tensor sequential(torch::nn::Module& model, const at::Tensor& input) {
  return model.as<torch::nn::SequentialImpl>()->forward(input);
}

at::Tensor image_model(torch::nn::Module& model, const at::Tensor& input) {
  return dynamic_cast<models::ImageModel&>(model).forward(input);
}

TEST_F(SimOperators, LinearAndReluTrainToTheBitsOfTheCpu) {
  expect_same_bits(train(small_net, sequential, {8, 20}, at::kCPU),
                   train(small_net, sequential, {8, 20}, sim::device(1)));
}

TEST_F(SimOperators, AConvNetTrainsToTheBitsOfTheCpu) {
  const auto make = [] { return models::make_model("convnet"); };
  expect_same_bits(train(make, image_model, {4, 1, 28, 28}, at::kCPU),
                   train(make, image_model, {4, 1, 28, 28}, sim::device()));
}

TEST_F(SimOperators, ResNetTrainsToTheBitsOfTheCpu) {
  const auto make = [] {
    return models::make_model("resnet18_cifar", {.channels = 3, .height = 8, .width = 8, .classes = 10});
  };
  expect_same_bits(train(make, image_model, {2, 3, 8, 8}, at::kCPU),
                   train(make, image_model, {2, 3, 8, 8}, sim::device()));
}

TEST_F(SimOperators, InPlaceAndOutReturnTheirVeryArgument) {
  const at::Tensor a = torch::ones({3, 4}, sim::device());
  EXPECT_TRUE(a.add_(1).is_same(a));
  at::Tensor out = torch::empty({0}, sim::device());
  EXPECT_TRUE(at::add_out(out, a, a).is_same(out));
  EXPECT_TRUE(at::equal(out.cpu(), torch::full({3, 4}, 4.0F)));
  EXPECT_EQ(out.device(), sim::device());
}

TEST_F(SimOperators, ViewsShareTheirMemory) {
  const at::Tensor base = torch::zeros({4, 6}, sim::device());
  base.narrow(1, 2, 2).fill_(1);
  base.t().view({6, 2, 2}).select(0, 5).fill_(2);
  base.as_strided({2}, {7}, 1).add_(5);
  base.unfold(0, 2, 2).select(1, 0).mul_(3);
  const at::Tensor expected = torch::zeros({4, 6});
  expected.narrow(1, 2, 2).fill_(1);
  expected.t().view({6, 2, 2}).select(0, 5).fill_(2);
  expected.as_strided({2}, {7}, 1).add_(5);
  expected.unfold(0, 2, 2).select(1, 0).mul_(3);
  EXPECT_TRUE(at::equal(base.cpu(), expected));
}

TEST_F(SimOperators, AShapeChangesInPlace) {
  at::Tensor a = torch::arange(6, at::TensorOptions(sim::device()).dtype(at::kFloat));
  const void* const before = a.const_data_ptr();
  EXPECT_EQ(a.unsqueeze_(0).sizes(), at::IntArrayRef({1, 6}));
  EXPECT_EQ(a.squeeze_().t_().const_data_ptr(), before);
  a.resize_({100, 100});
  EXPECT_NE(a.const_data_ptr(), before);
  EXPECT_EQ(a.storage().device(), sim::device());
  EXPECT_TRUE(at::equal(a.view(-1).narrow(0, 0, 6).cpu(), torch::arange(6, at::kFloat)));
  const at::Tensor other = torch::ones({2, 2}, sim::device());
  a.set_(other);
  EXPECT_TRUE(a.is_alias_of(other));
  a.set_(other.storage(), 1, {3}, {1});
  EXPECT_EQ(a.sum().item<float>(), 3);
  a.set_();
  EXPECT_EQ(a.numel(), 0);
  EXPECT_EQ(a.device(), sim::device());
}

TEST_F(SimOperators, ManyOperatorsAreTheCpus) {
  torch::manual_seed(2);
  const at::Tensor a = torch::randn({5, 7});
  const at::Tensor there = a.to(sim::device());
  const auto same = [](const at::Tensor& sim, const at::Tensor& cpu) {
    EXPECT_EQ(sim.device(), sim::device());
    EXPECT_TRUE(at::equal(sim.cpu(), cpu));
  };
  const auto each = [&](const std::function<std::vector<at::Tensor>(const at::Tensor&)>& compute) {
    const std::vector<at::Tensor> sim = compute(there);
    const std::vector<at::Tensor> cpu = compute(a);
    for (std::size_t i = 0; i < cpu.size(); ++i) same(sim.at(i), cpu[i]);
  };
  each([](const at::Tensor& x) -> std::vector<at::Tensor> {
    return {x.softmax(1), x.sum(0), x.mean(), x.std(1), x.norm()};
  });
  each([](const at::Tensor& x) -> std::vector<at::Tensor> {
    return {std::get<0>(x.sort(1)), std::get<1>(x.topk(3)), x.argmax(1)};
  });
  each([](const at::Tensor& x) -> std::vector<at::Tensor> {
    return {at::cat({x, x}), at::stack({x, x}, 2), x.repeat({2, 2})};
  });
  each([](const at::Tensor& x) { return x.split(2); });
  each([](const at::Tensor& x) { return at::_foreach_add(x.unbind(0), 2.0); });
  each([](const at::Tensor& x) -> std::vector<at::Tensor> {
    return {x.masked_select(x > 0), x.index({x > 0}), at::where(x > 0, x, -x)};
  });
  each([](const at::Tensor& x) -> std::vector<at::Tensor> {
    return {x.to(at::kBFloat16).matmul(x.t().to(at::kBFloat16)), x.to(at::kLong)};
  });
  each([](const at::Tensor& x) -> std::vector<at::Tensor> {
    return {at::layer_norm(x, {7}), at::gelu(x), x.clamp(-1, 1), x.eq(x)};
  });
  each([](const at::Tensor& x) -> std::vector<at::Tensor> {
    return {x.contiguous().pow(2).sqrt(), x.t().contiguous(), x.flip(0)};
  });
  each([](const at::Tensor& x) -> std::vector<at::Tensor> {
    return {torch::linspace(0, 1, 5, x.options()), torch::eye(3, x.options()), torch::full({2}, 7, x.options())};
  });
}

TEST_F(SimOperators, AttentionIsNearTheCpus) {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({2, 3, 5, 8});
  const at::Tensor there = x.to(sim::device()).requires_grad_();
  const at::Tensor here = x.clone().requires_grad_();
  at::scaled_dot_product_attention(there, there, there).sum().backward();
  at::scaled_dot_product_attention(here, here, here).sum().backward();
  EXPECT_TRUE(at::allclose(there.grad().cpu(), here.grad(), 1e-4, 1e-5));
}

TEST_F(SimOperators, FusedUpdatesAndScalersAreTheCpus) {
  const auto step = [](at::Device device) {
    torch::manual_seed(3);
    std::vector<at::Tensor> weights;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> momenta;
    for (const std::int64_t size : {3, 8}) {
      weights.push_back(torch::randn({size}).to(device));
      gradients.push_back(torch::randn({size}).to(device));
      momenta.push_back(torch::zeros({size}, device));
    }
    at::Tensor found = torch::zeros({1}, device);
    at::Tensor scale = torch::full({}, 4.0F, device);
    at::Tensor tracker = torch::zeros({}, at::TensorOptions(device).dtype(at::kInt));
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, scale.reciprocal());
    at::_fused_sgd_(weights, gradients, momenta, 0.0, 0.9, 0.1, 0.0, false, false, true, std::nullopt, found);
    at::_amp_update_scale_(scale, tracker, found, 2.0, 0.5, 1);
    return std::vector<at::Tensor>{weights[0].cpu(), weights[1].cpu(), momenta[1].cpu(), scale.cpu()};
  };
  const std::vector<at::Tensor> sim = step(sim::device());
  const std::vector<at::Tensor> cpu = step(at::kCPU);
  for (std::size_t i = 0; i < cpu.size(); ++i) EXPECT_TRUE(at::equal(sim[i], cpu[i])) << i;
}

TEST_F(SimOperators, BatchNormInPartsIsBatchNorm) {
  torch::manual_seed(4);
  const at::Tensor x = torch::randn({7, 3, 4, 5});
  const at::Tensor dy = torch::randn({7, 3, 4, 5});
  torch::nn::BatchNorm2d norm(3);
  norm->weight.detach().uniform_();
  const at::Tensor input = x.clone().requires_grad_();
  const at::Tensor expected = norm->forward(input);
  expected.backward(dy);

  const auto there = [](const at::Tensor& tensor) { return tensor.detach().to(sim::device()); };
  const at::Tensor weight = there(norm->weight);
  std::vector<at::Tensor> means;
  std::vector<at::Tensor> inverses;
  for (const at::Tensor& part : x.split({5, 2})) {
    auto [mean, inverse] = at::batch_norm_stats(there(part), 1e-5);
    means.push_back(mean);
    inverses.push_back(inverse);
  }
  const at::Tensor counts = torch::tensor({100, 40}, sim::device()).to(at::kInt);
  const at::Tensor running_mean = torch::zeros({3}, sim::device());
  const at::Tensor running_var = torch::ones({3}, sim::device());
  const auto [mean, inverse] = at::batch_norm_gather_stats_with_counts(there(x), at::stack(means), at::stack(inverses),
                                                                       running_mean, running_var, 0.1, 1e-5, counts);
  const auto near = [](const at::Tensor& sim, const at::Tensor& cpu) {
    EXPECT_TRUE(at::allclose(sim.cpu(), cpu, 1e-4, 1e-5)) << sim.cpu() << cpu;
  };
  near(running_mean, norm->running_mean);
  near(running_var, norm->running_var);
  near(at::batch_norm_elemt(there(x), weight, there(norm->bias), mean, inverse, 1e-5), expected.detach());
  const auto [sum, around, of_weight, of_bias] =
      at::batch_norm_backward_reduce(there(dy), there(x), mean, inverse, weight, true, true, true);
  near(of_weight, norm->weight.grad());
  near(of_bias, norm->bias.grad());
  near(at::batch_norm_backward_elemt(there(dy), there(x), mean, inverse, weight, sum, around, counts), input.grad());
}

TEST_F(SimOperators, RandomNumbersAreOfTheDevicesGenerator) {
  const auto draw = [] { return at::dropout(torch::ones({64}, sim::device()), 0.5, true).cpu(); };
  torch::manual_seed(7);
  const at::Tensor first = draw();
  const at::Tensor second = draw();
  EXPECT_FALSE(at::equal(first, second));
  torch::manual_seed(7);
  const at::Tensor of_cpu = torch::rand({3});
  EXPECT_TRUE(at::equal(draw(), first)) << "the CPU's numbers are its own";
  torch::manual_seed(7);
  draw();
  EXPECT_TRUE(at::equal(torch::rand({3}), of_cpu)) << "and stay so";
  at::Generator generator = at::globalContext().defaultGenerator(sim::device(1));
  EXPECT_EQ(generator.device(), sim::device(1));
  generator.set_current_seed(5);
  const at::Tensor state = generator.get_state();
  const at::Tensor drawn = torch::randn({4}, sim::device(1)).cpu();
  EXPECT_TRUE(at::equal(torch::randn({4}, at::detail::createCPUGenerator(5)), drawn));
  generator.set_state(state);
  EXPECT_TRUE(at::equal(at::randn({4}, generator, at::TensorOptions(sim::device(1))).cpu(), drawn));
}

TEST_F(SimOperators, TensorsOfTwoDevicesAreRefused) {
  const at::Tensor a = torch::ones({2}, sim::device(0));
  EXPECT_THROW(a + torch::ones({2}, sim::device(1)), c10::Error);
  EXPECT_THROW(a + torch::ones({2}), c10::Error);
  EXPECT_EQ((a + torch::tensor(1.0F)).sum().item<float>(), 4) << "a number of the CPU may take part";
}

TEST_F(SimOperators, AutocastChoosesTheType) {
  const at::Tensor x = torch::randn({4, 8});
  const at::Tensor weight = torch::randn({5, 8});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor there = weight.to(sim::device()).requires_grad_();
    at::autocast::set_autocast_enabled(at::kPrivateUse1, true);
    at::autocast::set_autocast_dtype(at::kPrivateUse1, type);
    const at::Tensor logits = at::linear(x.to(sim::device()), there);
    const at::Tensor loss = at::log_softmax(logits, 1).sum();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kPrivateUse1, false);
    EXPECT_EQ(logits.scalar_type(), type);
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(logits.cpu(), at::linear(x.to(type), weight.to(type))));
    loss.backward();
    EXPECT_EQ(there.grad().scalar_type(), at::kFloat);
  }
}

}  // namespace
}  // namespace lockstep::testing
