// Horovod's DistributedOptimizer does by several processes what one does with the whole batch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/state/hash.h"
#include "tests/support/horovod_ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/usage_error.h"
#include "tests/support/what_of.h"
#include "tests/unit/horovod/plain_adasum.h"

namespace lockstep {
namespace {

using support::run_horovod;
using ::testing::HasSubstr;
namespace F = torch::nn::functional;

constexpr int kRanks = 3;
constexpr int kSteps = 6;
constexpr int kBatch = 4;  // of a rank

torch::nn::Sequential small_mlp() {
  torch::manual_seed(0);
  return torch::nn::Sequential(torch::nn::Linear(5, 16), torch::nn::Tanh(), torch::nn::Linear(16, 2));
}

// The batch of some ranks at a step.
at::Tensor inputs_of(int step, int first, int ranks = 1) {
  const auto generator = torch::make_generator<at::CPUGeneratorImpl>(std::uint64_t(step + 1));
  return torch::rand({kRanks * kBatch, 5}, generator).narrow(0, first * kBatch, ranks * kBatch);
}
at::Tensor loss_of(torch::nn::Sequential& model, const at::Tensor& x) {
  return F::mse_loss(model->forward(x), x.narrow(1, 0, 2).square());
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<at::Tensor>&)>;

std::unique_ptr<torch::optim::Optimizer> sgd(const std::vector<at::Tensor>& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters,
                                             torch::optim::SGDOptions(0.3).momentum(0.9).weight_decay(1e-3));
}
std::unique_ptr<torch::optim::Optimizer> adam(const std::vector<at::Tensor>& parameters) {
  return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01));
}

// The weights of one process that sees the batches of all.
std::vector<at::Tensor> whole_batch(const MakeOptimizer& make) {
  torch::nn::Sequential model = small_mlp();
  const auto optimizer = make(model->parameters());
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    loss_of(model, inputs_of(step, 0, kRanks)).backward();
    optimizer->step();
  }
  return model->parameters();
}

void expect_near(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& expected, double tolerance) {
  for (std::size_t i = 0; i < weights.size(); ++i)
    EXPECT_TRUE(torch::allclose(weights[i], expected[i], tolerance, tolerance))
        << i << ": " << (weights[i] - expected[i]).abs().max().item<double>();
}

void expect_whole_batch(const MakeOptimizer& make, const hvd::DistributedOptimizerOptions& options, double tolerance) {
  torch::nn::Sequential model = small_mlp();
  if (hvd::rank() > 0)
    for (const at::Tensor& parameter : model->parameters()) parameter.detach().zero_();
  hvd::broadcast_parameters(*model);
  const auto inner = make(model->parameters());
  hvd::DistributedOptimizer optimizer(*inner, options);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(model, inputs_of(step, hvd::rank())).backward();
    optimizer.step();
  }
  expect_near(model->parameters(), whole_batch(make), tolerance);
}

TEST(HorovodOptimizer, IsTheWholeBatch) {
  run_horovod(kRanks, [] {
    for (const MakeOptimizer& make : {MakeOptimizer(sgd), MakeOptimizer(adam)}) {
      expect_whole_batch(make, {}, 1e-6);
      expect_whole_batch(make, {.gradient_predivide_factor = 2}, 1e-6);
    }
    // 11 and 8 bits of each gradient; steps of 0.3.
    expect_whole_batch(sgd, {.compression = hvd::Compression::fp16}, 1e-3);
    expect_whole_batch(sgd, {.compression = hvd::Compression::bf16}, 1e-2);
  });
}

TEST(HorovodOptimizer, SumIsTheAverageOfASmallerRate) {
  run_horovod(kRanks, [] {
    const auto by_rate = [](double rate) {
      return [rate](const std::vector<at::Tensor>& parameters) -> std::unique_ptr<torch::optim::Optimizer> {
        return std::make_unique<torch::optim::SGD>(parameters, rate);
      };
    };
    torch::nn::Sequential model = small_mlp();
    const auto inner = by_rate(0.3 / kRanks)(model->parameters());
    hvd::DistributedOptimizer optimizer(*inner, {.op = hvd::Sum});
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      loss_of(model, inputs_of(step, hvd::rank())).backward();
      optimizer.step();
    }
    expect_near(model->parameters(), whole_batch(by_rate(0.3)), 1e-6);
  });
}

std::string hash_trained(const hvd::DistributedOptimizerOptions& options) {
  torch::nn::Sequential model = small_mlp();
  const auto inner = sgd(model->parameters());
  hvd::DistributedOptimizer optimizer(*inner, options);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(model, inputs_of(step, hvd::rank())).backward();
    optimizer.step();
  }
  std::map<std::string, at::Tensor> weights;
  for (const auto& item : model->named_parameters()) weights.emplace(item.key(), item.value().detach());
  return state::tensors_hash(weights);
}

TEST(HorovodOptimizer, GivesTheSameBitsInEveryRun) {
  support::SharedText first, second;
  for (support::SharedText* const text : {&first, &second})
    run_horovod(kRanks, [&] {
      std::string hashes;
      for (const hvd::DistributedOptimizerOptions& options :
           std::vector<hvd::DistributedOptimizerOptions>{{},
                                                         {.gradient_predivide_factor = 2},
                                                         {.num_groups = 2},
                                                         {.compression = hvd::Compression::fp16},
                                                         {.op = hvd::Sum},
                                                         {.op = hvd::Adasum}})
        hashes += hash_trained(options) + ' ';
      if (hvd::rank() == 0) text->set(hashes);
    });
  EXPECT_EQ(first.get(), second.get());
  EXPECT_NE(first.get(), "");
}

// Horovod's own way with AMP: overflows are those of all ranks, for gradients are unscaled when they are one.
TEST(HorovodOptimizer, TakesAGradScalerBehindSynchronize) {
  run_horovod(2, [] {
    torch::nn::Linear model(1, 1);
    model->weight.detach().fill_(0);
    torch::optim::SGD inner(model->parameters(), 1.0);
    hvd::DistributedOptimizer optimizer(inner);
    amp::GradScaler scaler({.init_scale = 1024});
    const auto step = [&](double factor) {
      optimizer.zero_grad();
      scaler.scale(model(torch::ones({1, 1})).sum() * factor).backward();
      EXPECT_THAT(testing::usage_error([&] { (void)optimizer.param_groups(); }), HasSubstr("call synchronize() first"));
      optimizer.synchronize();
      scaler.unscale_(optimizer);
      bool stepped = false;
      {
        const auto skip = optimizer.skip_synchronize();
        stepped = scaler.step(optimizer);
      }
      scaler.update();
      return stepped;
    };
    EXPECT_FALSE(step(hvd::rank() == 1 ? std::numeric_limits<double>::infinity() : 1));
    EXPECT_EQ(scaler.get_scale(), 512);
    EXPECT_EQ(model->weight.item<float>(), 0);
    EXPECT_TRUE(step(1 + 2 * hvd::rank()));
    EXPECT_EQ(model->weight.item<float>(), -2);
  });
}

TEST(HorovodOptimizer, BackwardPassesAddUpAndGradientsCanBeClipped) {
  run_horovod(2, [] {
    torch::nn::Linear model(2, 1);
    hvd::broadcast_parameters(*model);
    const at::Tensor before = model->weight.detach().clone();
    torch::optim::SGD inner(model->parameters(), 1.0);
    hvd::DistributedOptimizer optimizer(inner,
                                        {.named_parameters = model->named_parameters(), .backward_passes_per_step = 2});
    const auto backward = [&](double x) { model(torch::full({1, 2}, x)).sum().backward(); };
    backward(1 + hvd::rank());
    backward(10);
    EXPECT_THAT(testing::usage_error([&] { backward(1); }),
                HasSubstr("rank " + std::to_string(hvd::rank()) + " computes the gradient of "));
    optimizer.synchronize();
    EXPECT_TRUE(torch::equal(model->weight.grad(), torch::full({1, 2}, 11.5)));
    model->weight.mutable_grad().clamp_max_(3);
    {
      const auto skip = optimizer.skip_synchronize();
      optimizer.step();
    }
    EXPECT_TRUE(torch::allclose(model->weight, before - 3));
  });
}

TEST(HorovodOptimizer, AParameterWithoutGradientsCountsAsZeros) {
  run_horovod(2, [] {
    torch::nn::Linear used(1, 1), sometimes(1, 1), never(1, 1);
    std::vector<at::Tensor> parameters = {used->weight, sometimes->weight, never->weight};
    for (const at::Tensor& parameter : parameters) parameter.detach().fill_(1);
    torch::optim::SGD inner(parameters, 1.0);
    hvd::DistributedOptimizer optimizer(inner);
    at::Tensor y = used(torch::ones({1, 1}));
    if (hvd::rank() == 1) y = y + sometimes(torch::ones({1, 1}));
    y.sum().backward();
    optimizer.step();
    EXPECT_EQ(used->weight.item<float>(), 0);
    EXPECT_EQ(sometimes->weight.item<float>(), 0.5);
    EXPECT_EQ(never->weight.item<float>(), 1);
  });
}

TEST(HorovodOptimizer, AdasumCombinesWhatTheRanksWouldChange) {
  run_horovod(kRanks, [] {
    torch::nn::Sequential model = small_mlp();
    const auto inner = adam(model->parameters());
    hvd::DistributedOptimizer optimizer(*inner, {.op = hvd::Adasum});
    EXPECT_THAT(testing::usage_error([&] { (void)optimizer.skip_synchronize(); }), HasSubstr("Adasum"));
    // The same by hand: each rank's step alone, from the same weights.
    std::vector<torch::nn::Sequential> models;
    std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers;
    for (int rank = 0; rank < kRanks; ++rank) {
      models.push_back(small_mlp());
      optimizers.push_back(adam(models.back()->parameters()));
    }
    const at::NoGradGuard no_grad;
    for (int step = 0; step < 3; ++step) {
      const auto backward = [&](torch::nn::Sequential& net, int rank) {
        const at::AutoGradMode grad(true);
        loss_of(net, inputs_of(step, rank)).backward();
      };
      optimizer.zero_grad();
      backward(model, hvd::rank());
      optimizer.step();
      const std::size_t count = model->parameters().size();
      std::vector<std::vector<std::vector<double>>> changes(count);
      std::vector<at::Tensor> before;
      for (const at::Tensor& parameter : models[0]->parameters()) before.push_back(parameter.clone());
      for (int rank = 0; rank < kRanks; ++rank) {
        optimizers[std::size_t(rank)]->zero_grad();
        backward(models[std::size_t(rank)], rank);
        optimizers[std::size_t(rank)]->step();
        for (std::size_t i = 0; i < count; ++i) {
          const at::Tensor change =
              (models[std::size_t(rank)]->parameters()[i] - before[i]).to(torch::kDouble).view({-1});
          changes[i].emplace_back(change.data_ptr<double>(), change.data_ptr<double>() + change.numel());
        }
      }
      for (std::size_t i = 0; i < count; ++i) {
        const at::Tensor all = torch::tensor(hvd::plain_adasum(changes[i]), torch::kDouble).view(before[i].sizes());
        for (auto& each : models) each->parameters()[i].copy_(before[i] + all);
      }
      expect_near(model->parameters(), models[0]->parameters(), 1e-6);
    }
  });
}

TEST(HorovodOptimizer, RanksWithFewerBatchesJoin) {
  run_horovod(2, [] {
    torch::nn::Linear model(1, 1);
    model->weight.detach().fill_(0);
    torch::optim::SGD inner(model->parameters(), 1.0);
    hvd::DistributedOptimizer optimizer(inner);
    for (int batch = 0; batch < (hvd::rank() == 0 ? 3 : 1); ++batch) {
      optimizer.zero_grad();
      model(torch::ones({1, 1})).sum().backward();
      optimizer.step();
    }
    EXPECT_EQ(hvd::join(), 0);
    // One step by both, two by half the gradient; a rank that has joined steps no more.
    EXPECT_EQ(model->weight.item<float>(), hvd::rank() == 0 ? -2 : -1);
    hvd::broadcast_parameters(*model);
    EXPECT_EQ(model->weight.item<float>(), -2);
  });
}

TEST(HorovodOptimizer, RanksOutsideOfTheSetStepByTheirOwnGradients) {
  run_horovod(3, [] {
    const hvd::ProcessSet ends = hvd::add_process_set({0, 2});
    torch::nn::Linear model(1, 1);
    model->weight.detach().fill_(0);
    torch::optim::SGD inner(model->parameters(), 1.0);
    hvd::DistributedOptimizer optimizer(inner, {.process_set = ends});
    model(torch::full({1, 1}, double(hvd::rank() * hvd::rank()))).sum().backward();
    optimizer.step();
    EXPECT_EQ(model->weight.item<float>(), hvd::rank() == 1 ? -1 : -2);
  });
}

// What looks at the gradients in the middle of backward, behind what was sent so far: operations run in one order.
using Look = std::function<void(torch::nn::Linear& first, torch::nn::Linear& second)>;
void look_within_backward(const Look& look,
                          const std::function<void(hvd::DistributedOptimizerOptions&, hvd::Tensors)>& set) {
  torch::nn::Linear first(2, 2), second(2, 1);
  const std::vector<at::Tensor> all{first->weight, first->bias, second->weight, second->bias};
  torch::optim::SGD inner(all, 1.0);
  hvd::DistributedOptimizerOptions options;
  set(options, all);
  hvd::DistributedOptimizer optimizer(inner, options);
  for (int step = 0; step < 2; ++step) {
    const at::Tensor between = first(torch::ones({1, 2}));
    int looked = 0;
    between.register_hook([&](const at::Tensor&) {
      hvd::barrier();
      look(first, second);
      ++looked;
    });
    (second(between).sum() * (hvd::rank() + 1)).backward();
    EXPECT_EQ(looked, 1);
    optimizer.synchronize();
    EXPECT_EQ(second->bias.grad().item<float>(), 1.5);
    const auto skip = optimizer.skip_synchronize();
    optimizer.step();
    optimizer.zero_grad();
  }
}

TEST(HorovodOptimizer, GradientsGoWhileBackwardRuns) {
  run_horovod(2, [] {
    look_within_backward(
        [](torch::nn::Linear& first, torch::nn::Linear& second) {
          EXPECT_FALSE(first->weight.grad().defined()) << "backward has not come there";
          EXPECT_EQ(second->bias.grad().item<float>(), 1.5) << "and this is the mean already";
        },
        [](auto& options, const hvd::Tensors&) { options.num_groups = 2; });
  });
}

TEST(HorovodOptimizer, AGroupGoesWhenItsLastGradientIsThere) {
  run_horovod(2, [] {
    look_within_backward(
        [](torch::nn::Linear&, torch::nn::Linear& second) {
          EXPECT_EQ(second->bias.grad().item<float>(), float(hvd::rank() + 1)) << "the group waits for the first layer";
        },
        [](auto& options, const hvd::Tensors& all) {
          options.groups = {{all[0], all[3]}};
        });
  });
}

TEST(HorovodOptimizer, SparseGradientsAreRefusedOrMadeDense) {
  run_horovod(2, [] {
    for (const bool dense : {false, true}) {
      torch::nn::Embedding rows(torch::nn::EmbeddingOptions(3, 2).sparse(true));
      torch::nn::init::ones_(rows->weight);
      torch::optim::SGD inner(rows->parameters(), 1.0);
      hvd::DistributedOptimizer optimizer(inner, {.sparse_as_dense = dense});
      rows(torch::full({1}, hvd::rank(), torch::kLong)).sum().backward();
      if (!dense) {
        EXPECT_THAT(testing::usage_error([&] { optimizer.step(); }),
                    HasSubstr("is sparse; needs a dense one, or sparse"));
        continue;
      }
      optimizer.step();
      EXPECT_TRUE(
          torch::equal(rows->weight.detach(), torch::tensor({{0.5, 0.5}, {0.5, 0.5}, {1.0, 1.0}}).to(at::kFloat)));
    }
  });
}

TEST(HorovodOptimizer, ModelsThatDifferAreTold) {
  run_horovod(2, [] {
    torch::nn::Linear model(hvd::rank() + 1, 1);
    torch::optim::SGD inner(model->parameters(), 1.0);
    hvd::DistributedOptimizer optimizer(inner);
    EXPECT_THAT(support::what_of([&] { optimizer.step(); }),
                HasSubstr("rank 0 calls allreduce(2 x Float, mean), rank 1 calls allreduce(3 x Float, mean)"));
  });
}

}  // namespace
}  // namespace lockstep
