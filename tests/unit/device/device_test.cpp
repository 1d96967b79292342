#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/device/sim_device.h"

namespace lockstep::testing {
namespace {

TEST(SimDevice, RoundTrip) {
  sim::install(2);
  const at::Tensor host = torch::arange(12, torch::kFloat).reshape({3, 4});
  const at::Tensor there = host.to(sim::device(1));
  EXPECT_EQ(there.device(), sim::device(1));
  EXPECT_TRUE(at::equal(there.t().to(at::kCPU), host.t()));
}

}  // namespace
}  // namespace lockstep::testing
