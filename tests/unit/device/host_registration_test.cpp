#include "lockstep/device/host_registration.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace lockstep::device {
namespace {

TEST(HostRegistration, DoesNothingForTheCpu) {
  std::vector<std::byte> memory(10000);
  HostRegistration registration(memory, at::Device(at::kCPU));
  EXPECT_FALSE(registration.registered());
  EXPECT_EQ(registration.refusal(), "");
  const HostRegistration moved = std::move(registration);
  EXPECT_FALSE(moved.registered());
}

TEST(HostRegistration, NothingToLockIsNoRefusal) {
  const HostRegistration registration({}, at::Device(at::kCUDA, 0));
  EXPECT_FALSE(registration.registered());
  EXPECT_EQ(registration.refusal(), "");
}

}  // namespace
}  // namespace lockstep::device
