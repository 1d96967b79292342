#include "lockstep/launch/hosts/host_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(HostChanges, WhoIsStartedAgain) {
  struct Row {
    const char* name;
    FailedAgent agent;
    int max_restarts;
    bool discovers;
    bool again;
  };
  const milliseconds soon(100), late(60'000);
  const Row rows[] = {
      {"lost", {.code = 137, .lived = soon}, 1, false, true},
      {"its shell lost the connection", {.code = 255, .lived = late}, 1, false, true},
      {"its shell never got in", {.code = 255, .lived = soon}, 1, false, false},
      {"no such program", {.code = 127, .lived = soon}, 1, false, false},
      {"bad input on that host", {.code = 2, .lived = late}, 1, false, false},
      {"refused when it comes again", {.code = 2, .failures = 2, .lived = soon}, 1, false, true},
      {"a discovered one with bad input", {.code = 2, .lived = soon}, 1, true, true},
      {"the host comes up again", {.code = 255, .failures = 2, .lived = soon}, 1, false, true},
      {"without restarts", {.code = 137, .lived = late}, 0, false, false},
      {"the hosting agent", {.hosts = true, .code = 137, .lived = late}, 1, false, false},
      {"a discovered one that is not up yet", {.code = 255, .lived = soon}, 0, true, true},
      {"the hosting agent of discovered hosts", {.hosts = true, .code = 137, .lived = late}, 9, true, false},
  };
  for (const Row& row : rows)
    EXPECT_EQ(starts_again(row.agent, row.max_restarts, row.discovers), row.again) << row.name;
}

TEST(HostChanges, TheWaitDoubles) {
  EXPECT_EQ(wait_to_start_again(1), kStartAgain);
  EXPECT_EQ(wait_to_start_again(3), 4 * kStartAgain);
  EXPECT_EQ(wait_to_start_again(7), kStartAgainLongest);
  EXPECT_EQ(wait_to_start_again(1'000'000), kStartAgainLongest);
}

TEST(HostChanges, WhoComesAndWhoIsGone) {
  const std::vector<HostSlots> now{{"h1", 4}, {"h2", {}}, {"h3", 2}};
  const auto same = changes_of(now, {{"h3", 2}, {"h1", 4}, {"h2", {}}});
  EXPECT_THAT(same.come, IsEmpty());
  EXPECT_THAT(same.gone, IsEmpty());
  const auto other = changes_of(now, {{"h1", 4}, {"h4", 1}});
  EXPECT_THAT(other.come, ElementsAre(HostSlots{"h4", 1}));
  EXPECT_THAT(other.gone, ElementsAre(1, 2));
  // Other slots: gone first, and a newcomer when it is no longer among those that are there.
  const auto slots = changes_of(now, {{"h1", 4}, {"h2", {}}, {"h3", 8}});
  EXPECT_THAT(slots.come, IsEmpty());
  EXPECT_THAT(slots.gone, ElementsAre(2));
  EXPECT_THAT(changes_of({{"h1", 4}}, {{"h1", 4}, {"h3", 8}}).come, ElementsAre(HostSlots{"h3", 8}));
  // The others meet at the first: it stays what it is.
  EXPECT_FALSE(slots.first_has_other_slots);
  const auto first = changes_of(now, {{"h1", 8}, {"h2", {}}, {"h3", 2}});
  EXPECT_TRUE(first.first_has_other_slots);
  EXPECT_THAT(first.gone, IsEmpty());
  EXPECT_THAT(first.come, IsEmpty());
  EXPECT_THAT(changes_of(now, {}).gone, ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace lockstep::launch
