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

}  // namespace
}  // namespace lockstep::parallel
