#include "lockstep/base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace lockstep::base {
namespace {

TEST(Cores, OfCpuMax) {
  EXPECT_EQ(cores_of_cpu_max("200000 100000"), 2);
  EXPECT_EQ(cores_of_cpu_max("150000 100000"), 2);
  EXPECT_EQ(cores_of_cpu_max("20000 100000"), 1);
  EXPECT_EQ(cores_of_cpu_max("max 100000"), 0);
  EXPECT_EQ(cores_of_cpu_max(""), 0);
  EXPECT_EQ(cores_of_cpu_max("100000 0"), 0);
}

TEST(Cores, FollowTheAffinity) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_LE(usable_cores(), CPU_COUNT(&before));
}

}  // namespace
}  // namespace lockstep::base
