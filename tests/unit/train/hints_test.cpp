#include "lockstep/train/hints.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

TEST(IdleCoresHint, NothingWhenAllAreBusy) {
  EXPECT_EQ(idle_cores_hint(2, 1, 2), "");
  EXPECT_EQ(idle_cores_hint(1, 2, 2), "");
  EXPECT_EQ(idle_cores_hint(128, 1024, 1), "");
}

TEST(IdleCoresHint, OneLineWithTheNumbers) {
  EXPECT_EQ(idle_cores_hint(1, 1, 2),
            "lockstep: hint: 1 process of 1 thread use 1 of 2 cores; more processes (-n) or --threads would use the "
            "rest");
  EXPECT_EQ(idle_cores_hint(3, 2, 64),
            "lockstep: hint: 3 processes of 2 threads use 6 of 64 cores; more processes (-n) or --threads would use "
            "the rest");
}

TEST(ChannelsLastHint, WherePicturesMeetConvolutions) {
  EXPECT_EQ(
      channels_last_hint(true, false),
      "lockstep: hint: --channels-last makes pictures and convolutions faster here; it changes the weights' bits");
}

TEST(ChannelsLastHint, NothingWhereThereIsNothingToGain) {
  EXPECT_EQ(channels_last_hint(true, true), "");
  EXPECT_EQ(channels_last_hint(false, false), "");
}

}  // namespace
}  // namespace lockstep::train
