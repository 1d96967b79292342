// What is edited outside modify(), what modify() takes over, and what of it a restart finds again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <sstream>

#include "lockstep/base/generation.h"
#include "lockstep/comm/shm/shm_group.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using support::SmallNet;
using support::what_of;
using testing::AllOf;
using testing::HasSubstr;

template <class Ddp>
void train_step(Ddp& ddp, optim::Optimizer& optimizer) {
  ddp(torch::randn({4, 20})).sum().backward();
  optimizer.step();
}

std::string saved(SmallNet& model) {
  std::ostringstream out;
  torch::save(model, out);
  return out.str();
}

// ---- parameters that somebody replaced

TEST(ReplacedParameters, StopTheNextForwardWithTheirName) {
  for (const bool load : {false, true})
    run_ranks(RankKind::single, 1, [&](auto group) {
      SmallNet model;
      DistributedDataParallel ddp(model, group);
      optim::SGD optimizer(ddp, {.lr = 0.1});
      train_step(ddp, optimizer);
      const at::Tensor mine = torch::ones_like(model->fc2->weight).detach();
      if (load) {
        SmallNet other;
        std::istringstream in(saved(other));
        torch::load(model, in);
      } else {
        model->fc2->weight.set_data(mine);
      }
      EXPECT_THAT(what_of([&] {
                    ddp(torch::randn({4, 20}));
                  }),
                  AllOf(HasSubstr(load ? "parameter 'fc1.weight'" : "parameter 'fc2.weight'"), HasSubstr("modify")));
      EXPECT_TRUE(torch::equal(mine, torch::ones_like(mine)));
    });
}

TEST(ReplacedParameters, StopTheStepWithTheirName) {
  run_ranks(RankKind::single, 1, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 0.1});
    const at::Tensor mine = torch::ones_like(model->fc2->weight).detach();
    ddp(torch::randn({4, 20})).sum().backward();
    model->fc2->weight.set_data(mine);
    EXPECT_THAT(what_of([&] { optimizer.step(); }), AllOf(HasSubstr("parameter 'fc2.weight'"), HasSubstr("modify")));
    EXPECT_TRUE(torch::equal(mine, torch::ones_like(mine)));
  });
}

class TakeOver : public testing::TestWithParam<Amp> {};
INSTANTIATE_TEST_SUITE_P(Precisions, TakeOver, testing::Values(Amp::none, Amp::bf16),
                         [](const auto& tested) { return tested.param == Amp::none ? "Float32" : "BFloat16"; });

TEST_P(TakeOver, LoadedWeightsBecomeEverybodysAndTrainOn) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group, {.amp = GetParam()});
    optim::SGD optimizer(ddp, {.lr = 0.1});
    train_step(ddp, optimizer);
    torch::manual_seed(17);
    SmallNet other;
    other->bn->running_mean.fill_(3);
    const std::string file = saved(other);
    ddp.modify([&] {
      std::istringstream in(file);
      torch::load(model, in);
    });
    const auto now = ddp.state_dict();
    for (const auto& item : other->named_parameters())
      EXPECT_TRUE(torch::equal(now.at(item.key()), item.value())) << item.key();
    EXPECT_TRUE(torch::equal(model->bn->running_mean, other->bn->running_mean));
    const std::string loaded = ddp.weights_hash();
    for (int step = 0; step < 2; ++step) train_step(ddp, optimizer);
    EXPECT_NE(ddp.weights_hash(), loaded) << "the weights do not train any more";
    EXPECT_EQ(ddp.steps(), 3u);
    EXPECT_FALSE(model->fc1->weight.grad().defined()) << "the hooks are gone";
  });
}

TEST_P(TakeOver, LeavesTheTensorThatGaveTheValuesAlone) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group, {.amp = GetParam()});
    optim::SGD optimizer(ddp, {.lr = 0.1});
    const at::Tensor bystander = torch::full({90, 300}, 0.25);
    const void* const memory = bystander.data_ptr();
    ddp.modify([&] { model->fc2->weight.set_data(bystander); });
    EXPECT_TRUE(torch::equal(ddp.state_dict().at("fc2.weight"), bystander));
    train_step(ddp, optimizer);
    EXPECT_EQ(bystander.data_ptr(), memory);
    EXPECT_TRUE(torch::equal(bystander, torch::full({90, 300}, 0.25)));
    EXPECT_FALSE(torch::equal(ddp.state_dict().at("fc2.weight"), bystander)) << "the weight does not train";
  });
}

TEST(TakingOver, RefusesOtherShapesAndTypes) {
  for (const at::Tensor& wrong : {torch::ones({90, 299}), torch::ones({90, 300}, torch::kDouble)})
    run_ranks(RankKind::single, 1, [&](auto group) {
      SmallNet model;
      DistributedDataParallel ddp(model, group);
      optim::SGD optimizer(ddp, {.lr = 0.1});
      const std::string before = ddp.weights_hash();
      EXPECT_THAT(what_of([&] { ddp.modify([&] { model->fc2->weight.set_data(wrong); }); }), HasSubstr("'fc2.weight'"));
      EXPECT_EQ(ddp.weights_hash(), before);
    });
}

TEST(KeptTensors, OutliveTheEngineAndTheGroup) {
  for (const Amp amp : {Amp::none, Amp::bf16}) {
    at::Tensor weight;
    at::Tensor inside;
    std::map<std::string, at::Tensor> dict;
    SmallNet model;
    run_ranks(RankKind::single, 1, [&](auto group) {
      DistributedDataParallel ddp(model, group, {.amp = amp});
      optim::SGD optimizer(ddp, {.lr = 0.1});
      train_step(ddp, optimizer);
      ddp.modify([&] { inside = model->fc2->weight.detach(); });
      weight = model->fc2->weight.detach();
      dict = ddp.state_dict();
    });
    EXPECT_TRUE(torch::equal(dict.at("fc2.weight"), model->fc2->weight));
    EXPECT_TRUE(torch::equal(weight, model->fc2->weight.to(weight.scalar_type())));
    EXPECT_TRUE(torch::equal(inside, model->fc2->weight));
  }
}

// What shares a parameter's memory when an edit begins gets no way into the memory that is edited.
void keep_over_an_edit(Amp amp, bool replace, bool write) {
  at::Tensor kept;
  std::map<std::string, at::Tensor> dict;
  SmallNet model;
  run_ranks(RankKind::single, 1, [&](auto group) {
    DistributedDataParallel ddp(model, group, {.amp = amp});
    optim::SGD optimizer(ddp, {.lr = 0.1});
    kept = model->fc2->weight.detach();
    ddp.modify([&] {
      if (replace) model->fc2->weight.set_data(torch::full({90, 300}, 0.5));
      dict = ddp.state_dict();
      dict.at("fc2.weight").add_(0.25);  // in place, or in the tensor that was given
    });
    if (replace) {
      EXPECT_EQ(ddp.state_dict().at("fc2.weight").max().template item<float>(), 0.75f);
    }
    train_step(ddp, optimizer);
    EXPECT_TRUE(torch::equal(kept, model->fc2->weight)) << "it follows";
    if (write) kept.fill_(1);
  });
  EXPECT_TRUE(kept.isfinite().all().item<bool>());
  EXPECT_TRUE(dict.at("fc2.weight").isfinite().all().item<bool>());
}

TEST(KeptTensors, OutliveAnEditThatBeganAfterThem) {
  for (const Amp amp : {Amp::none, Amp::bf16})
    for (const bool replace : {false, true}) keep_over_an_edit(amp, replace, false);
}

TEST(KeptTensorsDeathTest, CannotBeWrittenAfterAnEdit) {
  for (const Amp amp : {Amp::none, Amp::bf16})
    for (const bool replace : {false, true})
      EXPECT_DEATH(keep_over_an_edit(amp, replace, true), "parameter 'fc2.weight' was edited in place");
}

// The masters are edited, and the copies rounded from them: what goes into a copy would be lost.
TEST(KeptTensorsDeathTest, OfACopyCannotBeWrittenInAnEdit) {
  EXPECT_DEATH(run_ranks(RankKind::single, 1,
                         [](auto group) {
                           SmallNet model;
                           DistributedDataParallel ddp(model, group, {.amp = Amp::bf16});
                           optim::SGD optimizer(ddp);
                           const at::Tensor copy = model->fc2->weight.detach();
                           ddp.modify([&] { copy.fill_(1); });
                         }),
               "parameter 'fc2.weight' was edited in place");
}

// ---- module buffers

// A pass that has begun leaves its shard's statistics, which depend on the number of ranks: they are no state.
TEST(ModuleBuffers, WhatAPassHasLeftIsNotCommittedByModify) {
  run_ranks(RankKind::single, 1, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 0.1});
    const std::string before = ddp.state().hash();
    ddp(torch::randn({4, 20}));
    optimizer.zero_grad();
    ddp.modify([] {});
    EXPECT_EQ(ddp.state().hash(), before);
  });
}

TEST(ModuleBuffers, EditedBetweenStepsStopTheNextForwardWithTheirName) {
  run_ranks(RankKind::single, 1, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 0.1});
    train_step(ddp, optimizer);
    model->bn->running_mean.fill_(5);
    EXPECT_THAT(what_of([&] {
                  ddp(torch::randn({4, 20}));
                }),
                AllOf(HasSubstr("buffer 'bn.running_mean'"), HasSubstr("modify")));
    ddp.modify([&] { model->bn->running_mean.fill_(5); });
    EXPECT_TRUE(torch::equal(model->bn->running_mean, torch::full({300}, 5.0)));
    train_step(ddp, optimizer);
    model->bn->running_var.set_data(torch::ones({300}));
    EXPECT_THAT(what_of([&] { ddp(torch::randn({4, 20})); }), HasSubstr("buffer 'bn.running_var'"));
  });
}

TEST(ModuleBuffers, AForwardWithoutGradientsInTrainingModeIsAnEdit) {
  run_ranks(RankKind::single, 1, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 0.1});
    train_step(ddp, optimizer);
    {
      const torch::NoGradGuard no_grad;
      model->eval();
      ddp(torch::randn({4, 20}));
      model->train();
    }
    train_step(ddp, optimizer);  // evaluation edits nothing
    {
      const torch::NoGradGuard no_grad;
      ddp(torch::randn({4, 20}));
    }
    EXPECT_THAT(what_of([&] { ddp(torch::randn({4, 20})); }), AllOf(HasSubstr("buffer 'bn."), HasSubstr("eval()")));
  });
}

TEST(ModuleBuffers, OfAnotherShapeAreRefusedByModify) {
  run_ranks(RankKind::single, 1, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 0.1});
    EXPECT_THAT(what_of([&] { ddp.modify([&] { model->bn->running_mean.set_data(torch::ones({7})); }); }),
                HasSubstr("'bn.running_mean'"));
  });
}

// ---- frozen parameters

TEST(FrozenParameters, EditedInModifySurviveARestart) {
  base::Segment segment = base::Segment::create(1);
  const auto join = [&] { return std::make_shared<comm::ShmGroup>(base::Segment::open(segment.path(), 1), 0); };
  const auto frozen_net = [] {
    SmallNet model;
    model->fc1->bias.requires_grad_(false);
    return model;
  };
  std::string hash;
  std::string state;
  {
    SmallNet model = frozen_net();
    DistributedDataParallel ddp(model, join());
    optim::SGD optimizer(ddp, {.lr = 0.1});
    train_step(ddp, optimizer);
    const std::string before = ddp.state().hash();
    ddp.modify([&] { model->fc1->bias.fill_(0.5); });
    EXPECT_NE(ddp.state().hash(), before) << "frozen parameters are state";
    for (int step = 0; step < 2; ++step) train_step(ddp, optimizer);
    EXPECT_TRUE(torch::equal(model->fc1->bias, torch::full({300}, 0.5)));
    hash = ddp.weights_hash();
    state = ddp.state().hash();
  }
  segment = base::next_generation(std::move(segment), 1);
  SmallNet model = frozen_net();
  DistributedDataParallel ddp(model, join());
  optim::SGD optimizer(ddp, {.lr = 0.1});
  EXPECT_EQ(ddp.steps(), 3u);
  EXPECT_TRUE(torch::equal(model->fc1->bias, torch::full({300}, 0.5)));
  EXPECT_EQ(ddp.weights_hash(), hash);
  EXPECT_EQ(ddp.state().hash(), state);
}

TEST(FrozenParameters, OfAnyTypeLoadAndStayTheirOwnersWhenTheEngineGoes) {
  struct Net : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", torch::ones({3}));
    at::Tensor table = register_parameter("table", torch::arange(5, torch::kHalf), /*requires_grad=*/false);
    at::Tensor forward(const at::Tensor& x) { return (x * weight).sum() * table.sum(); }
  };
  run_ranks(RankKind::processes, 2, [](auto group) {
    const auto net = std::make_shared<Net>();
    {
      DistributedDataParallel ddp(net, group);
      optim::SGD optimizer(ddp, {.lr = 0.1});
      ddp.modify([&] { net->table.set_data(torch::full({5}, 2, torch::kHalf)); });
      ddp(torch::ones({3})).backward();
      optimizer.step();
      EXPECT_TRUE(torch::equal(net->table, torch::full({5}, 2, torch::kHalf)));
      EXPECT_TRUE(torch::allclose(net->weight, torch::zeros({3}), 0, 1e-6));
    }
    net->table.add_(1);
    EXPECT_TRUE(torch::equal(net->table, torch::full({5}, 3, torch::kHalf)));
  });
}

TEST(FrozenParametersDeathTest, AStrayInPlaceEditIsNamed) {
  EXPECT_DEATH(run_ranks(RankKind::single, 1,
                         [](auto group) {
                           SmallNet model;
                           model->fc1->bias.requires_grad_(false);
                           DistributedDataParallel ddp(model, group);
                           optim::SGD optimizer(ddp);
                           model->fc1->bias.fill_(1);
                         }),
               "parameter 'fc1.bias' was edited in place");
}

}  // namespace
}  // namespace lockstep::parallel
