#include "lockstep/base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace lockstep::base {
namespace {

TEST(Cores, FollowTheAffinity) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  EXPECT_EQ(affinity_cores(), 1);
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(affinity_cores(), CPU_COUNT(&before));
  EXPECT_LE(usable_cores(), affinity_cores());
  for (const int core : affinity_list()) EXPECT_TRUE(CPU_ISSET(core, &before)) << core;
  EXPECT_EQ(int(affinity_list().size()), affinity_cores());
}

TEST(Cores, AreCutByTheControlGroupsTime) {
  EXPECT_EQ(usable_of(8, std::nullopt), 8);
  EXPECT_EQ(usable_of(8, 1.5), 2);
  EXPECT_EQ(usable_of(8, 0.25), 1);
  EXPECT_EQ(usable_of(8, 16.0), 8);
  EXPECT_EQ(usable_of(8, 0.0), 1);
}

TEST(IdleCores, NothingWhenAllAreBusy) {
  EXPECT_EQ(idle_cores_text(2, 1, 2), "");
  EXPECT_EQ(idle_cores_text(1, 2, 2), "");
  EXPECT_EQ(idle_cores_text(128, 1024, 1), "");
}

TEST(IdleCores, AreCounted) {
  EXPECT_EQ(idle_cores_text(1, 1, 2), "1 process of 1 thread use 1 of 2 cores");
  EXPECT_EQ(idle_cores_text(4, 2, 64), "4 processes of 2 threads use 8 of 64 cores");
}

}  // namespace
}  // namespace lockstep::base
