#include "lockstep/base/core_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"

namespace lockstep::base {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<int> kAllowed{2, 3, 5, 7, 8};

TEST(CoreBinding, EachRankHasItsOwnAllowedCores) {
  EXPECT_THAT(cores_of_rank(kAllowed, 0, 5, 1), ElementsAre(2));
  EXPECT_THAT(cores_of_rank(kAllowed, 4, 5, 1), ElementsAre(8));
  EXPECT_THAT(cores_of_rank(kAllowed, 0, 2, 2), ElementsAre(2, 3));
  EXPECT_THAT(cores_of_rank(kAllowed, 1, 2, 2), ElementsAre(5, 7));
}

TEST(CoreBinding, TooFewCoresAreNone) {
  EXPECT_THAT(cores_of_rank(kAllowed, 0, 6, 1), IsEmpty());
  EXPECT_THAT(cores_of_rank(kAllowed, 0, 3, 2), IsEmpty());
}

// In threads of their own, since a binding lasts.

TEST(CoreBinding, BindsTheThreadAndWhatItStartsUntilTheyLeave) {
  const int all = affinity_cores();
  std::thread([&] {
    bind_to_own_cores(0, 1, 1);
    EXPECT_EQ(affinity_cores(), 1);
    std::thread([&] {
      EXPECT_EQ(affinity_cores(), 1);
      leave_own_cores();
      EXPECT_EQ(affinity_cores(), all);
    }).join();
    EXPECT_EQ(affinity_cores(), 1);
  }).join();
  EXPECT_EQ(affinity_cores(), all);
}

TEST(CoreBinding, RanksGetDifferentCores) {
  if (usable_cores() < 2) GTEST_SKIP() << "one core";
  const auto core_of = [](int local_rank) {
    int core = -1;
    std::thread([&] {
      bind_to_own_cores(local_rank, 2, 1);
      core = sched_getcpu();
    }).join();
    return core;
  };
  EXPECT_NE(core_of(0), core_of(1));
}

TEST(CoreBinding, MoreRanksThanCoresIsAnError) {
  if (affinity_cores() < 2) GTEST_SKIP() << "one core is taken for a binding by the launcher";
  const int all = affinity_cores();
  try {
    bind_to_own_cores(0, all + 1, 1);
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(all + 1) + " processes with 1 computing threads"));
  }
  EXPECT_EQ(affinity_cores(), all);
}

}  // namespace
}  // namespace lockstep::base
