#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/optim/update.h"
#include "lockstep/parallel/engine.h"

namespace lockstep::parallel {
namespace {

// An optimizer of somebody else's may ask for anything; the kernel's arrays are of a fixed number.
TEST(Attach, RefusesMoreStateThanTheKernelHasRoomFor) {
  Engine engine(std::make_shared<torch::nn::LinearImpl>(3, 2), std::make_shared<comm::SingleGroup>(), {});
  for (const int arrays : {optim::kMaxStateArrays + 1, -1}) {
    try {
      engine.attach({.arrays = arrays});
      ADD_FAILURE() << "attached with " << arrays;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::to_string(arrays) + " numbers of state for each weight"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("0 to 4"));
    }
  }
  engine.attach({.arrays = optim::kMaxStateArrays});
}

// Three million weights are worth two threads. The gradients are the inputs, whatever forward's threads do.
TEST(Update, OnThreadsHasTheBitsOfOne) {
  const int before = at::get_num_threads();
  std::vector<std::string> hashes;
  for (const int threads : {1, 2, 3}) {
    torch::manual_seed(1);
    const auto model = std::make_shared<torch::nn::LinearImpl>(1700, 1811);
    const at::Tensor input = torch::randn({1, 1700});
    Engine engine(model, std::make_shared<comm::SingleGroup>(), {});
    optim::Adam optimizer(engine, {.lr = 0.01});
    for (int step = 0; step < 2; ++step) {
      engine.begin_forward();
      model->forward(input).sum().backward();
      at::set_num_threads(threads);  // for ours alone: ThreadSanitizer does not see what OpenMP's wait for
      optimizer.step();
      at::set_num_threads(before);
    }
    hashes.push_back(engine.state().hash());
  }
  EXPECT_EQ(hashes[1], hashes[0]);
  EXPECT_EQ(hashes[2], hashes[0]);
}

}  // namespace
}  // namespace lockstep::parallel
