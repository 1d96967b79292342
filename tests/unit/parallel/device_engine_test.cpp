// The engine with a model on a device, which is a stand-in here.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/state/shared_state.h"
#include "tests/support/device/sim_device.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/usage_error.h"

namespace lockstep {
namespace {

namespace sim = testing::sim;
at::Device device() {
  sim::install();
  return sim::device(1);
}

std::shared_ptr<comm::Group> alone() { return std::make_shared<comm::SingleGroup>(); }

struct Trained {
  support::SmallNet model;
  DistributedDataParallel<support::SmallNet> ddp;
  optim::SGD optimizer;

  explicit Trained(Amp amp = Amp::none)
      : model(on_device()), ddp(model, alone(), {.amp = amp}), optimizer(ddp, {.lr = 0.05, .momentum = 0.9}) {}
  static support::SmallNet on_device() {
    torch::manual_seed(1);
    support::SmallNet model;
    model->to(device());
    return model;
  }
  void step() {
    const support::SmallBatch batch = support::small_batch(ddp.next_step(), {0, 1});
    const at::Tensor output = ddp(batch.data);
    torch::nn::functional::cross_entropy(output, batch.target.to(device())).backward();
    optimizer.step();
  }
};

TEST(DeviceEngine, QueuesNothingThatIsNotOrdered) {
  for (const Amp amp : {Amp::none, Amp::bf16}) {
    Trained trained(amp);
    const state::SharedState& state = *trained.ddp.state().shared();
    sim::pin(state.write(0), state.layout().total_bytes());
    trained.step();
    const sim::Recording recording;
    for (int i = 0; i < 4; ++i) trained.step();
    EXPECT_EQ(recording.report().faults, std::vector<std::string>());
  }
}

TEST(DeviceEngine, ParametersStayWhereTheyAre) {
  Trained trained;
  const at::Tensor weight = trained.model->fc1->weight;
  const void* const memory = weight.data_ptr();
  const at::Tensor before = weight.detach().cpu();
  trained.step();
  EXPECT_EQ(weight.device(), device());
  EXPECT_EQ(weight.data_ptr(), memory);
  EXPECT_FALSE(torch::equal(weight.detach().cpu(), before));
  EXPECT_TRUE(torch::equal(weight.detach().cpu(), trained.ddp.state_dict().at("fc1.weight")));
}

TEST(DeviceEngine, Bfloat16CopiesAreOnTheDevice) {
  Trained trained(Amp::bf16);
  trained.step();
  EXPECT_EQ(trained.model->fc1->weight.scalar_type(), at::kBFloat16);
  EXPECT_EQ(trained.model->bn->weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(torch::equal(trained.model->fc1->weight.detach().cpu(),
                           trained.ddp.state_dict().at("fc1.weight").to(at::kBFloat16)));
}

TEST(DeviceEngine, AnEditOutsideModifyIsNamed) {
  Trained trained;
  trained.step();
  {
    const torch::NoGradGuard no_grad;
    trained.model->fc2->bias.add_(1);
  }
  try {
    trained.step();
    ADD_FAILURE() << "an edit went unseen";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "parameter 'fc2.bias' was edited in place, but the weights are shared by all ranks; do it inside "
                 "ddp.modify(fn)");
  }
}

TEST(DeviceEngine, ModifyTakesEditsOver) {
  Trained trained;
  trained.step();
  trained.ddp.modify([&] {
    trained.model->fc2->bias.add_(1);
    trained.model->fc3->bias.set_data(torch::full({5}, 7.0, device()));
    trained.model->bn->running_mean.fill_(3);
  });
  const at::Tensor bias = trained.model->fc2->bias.detach().cpu();
  EXPECT_TRUE(torch::equal(bias, trained.ddp.state_dict().at("fc2.bias")));
  EXPECT_TRUE(torch::equal(torch::full({5}, 7.0), trained.ddp.state_dict().at("fc3.bias")));
  EXPECT_TRUE(torch::equal(torch::full({300}, 3.0), trained.ddp.state_dict().at("bn.running_mean")));
  trained.step();
  EXPECT_EQ(trained.ddp.steps(), 2u);
}

TEST(DeviceEngine, TheModuleOutlivesIt) {
  support::SmallNet model = nullptr;
  at::Tensor weight;
  {
    Trained trained(Amp::bf16);
    trained.step();
    model = trained.model;
    weight = trained.ddp.state_dict().at("fc1.weight").clone();
  }
  EXPECT_EQ(model->fc1->weight.scalar_type(), at::kFloat);
  EXPECT_EQ(model->fc1->weight.device(), device());
  EXPECT_TRUE(torch::equal(model->fc1->weight.detach().cpu(), weight));
}

TEST(DeviceEngine, ItsStateDictOutlivesItOnTheCpu) {
  std::map<std::string, at::Tensor> dict;
  at::Tensor weight;
  {
    Trained trained;
    trained.model->fc3->bias.set_requires_grad(false);
    trained.step();
    dict = trained.ddp.state_dict();
    weight = trained.model->fc1->weight.detach().cpu();
  }
  for (const auto& [name, tensor] : dict) EXPECT_TRUE(tensor.is_cpu()) << name;
  EXPECT_TRUE(torch::equal(dict.at("fc1.weight"), weight));
}

TEST(DeviceEngineDeathTest, AStrayEditOfItsStateDictNamesTheParameter) {
  GTEST_FLAG_SET(death_test_style, "fast");
  Trained trained;
  trained.step();
  EXPECT_DEATH(trained.ddp.state_dict().at("fc2.bias").add_(1), "parameter 'fc2.bias' was edited in place");
}

// What it would be alone is not what was asked for.
// As cuDNN lays out a recurrent layer's.
TEST(DeviceEngine, TakesParametersThatShareAStorageInParts) {
  support::SmallNet model = Trained::on_device();
  const at::Tensor both = torch::ones({95}, device());
  model->fc2->bias.set_data(both.narrow(0, 0, 90));
  model->fc3->bias.set_data(both.narrow(0, 90, 5));
  DistributedDataParallel<support::SmallNet> ddp(model, alone());
  optim::SGD optimizer(ddp, {.lr = 0.05});
  const support::SmallBatch batch = support::small_batch(1, {0, 1});
  torch::nn::functional::cross_entropy(ddp(batch.data), batch.target.to(device())).backward();
  optimizer.step();
  for (const char* name : {"fc2.bias", "fc3.bias"})
    EXPECT_TRUE(torch::equal(model->named_parameters()[name].detach().cpu(), ddp.state_dict().at(name))) << name;
}

TEST(DeviceEngine, RefusesAModelOnTwoDevices) {
  support::SmallNet model = Trained::on_device();
  model->fc3->to(at::kCPU);
  const auto wrap = [&] { DistributedDataParallel<support::SmallNet>(model, alone()); };
  EXPECT_EQ(testing::usage_error(wrap),
            "'fc3.weight' is on cpu and 'fc1.weight' on sim:1; a model is on one device: module->to(device) before it "
            "is wrapped");
}

}  // namespace
}  // namespace lockstep
