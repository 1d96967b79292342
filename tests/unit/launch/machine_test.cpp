#include "lockstep/launch/machine.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(Machine, APortAndAnId) {
  const int port = free_port();
  EXPECT_GT(port, 1023);
  EXPECT_LT(port, 65536);
  EXPECT_EQ(random_id().size(), 16u);
  EXPECT_NE(random_id(), random_id());
}

}  // namespace
}  // namespace lockstep::launch
