#include "lockstep/launch/machine/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(RandomId, IsAUuid) {
  EXPECT_THAT(random_id(),
              ::testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_NE(random_id(), random_id());
}

TEST(CountGpus, TheVisibleOnes) {
  const auto count = [](const std::string& list) { return count_gpus(&list); };
  EXPECT_EQ(count("0,1,5"), 3);
  EXPECT_EQ(count("GPU-abc"), 1);
  EXPECT_EQ(count(""), 0);
  EXPECT_EQ(count("-1"), 0);
  EXPECT_EQ(count("2,-1,3"), 1) << "CUDA ignores what stands after -1";
}

TEST(LocalAddress, WhatCanBeBoundHere) {
  for (const char* name : {"localhost", "127.0.0.1", "127.0.1.1", "0.0.0.0"})
    EXPECT_TRUE(is_local_address(name)) << name;
  for (const char* name : {"192.0.2.77", "", "no such host", "2001:db8::77"})
    EXPECT_FALSE(is_local_address(name)) << name;
}

}  // namespace
}  // namespace lockstep::launch
