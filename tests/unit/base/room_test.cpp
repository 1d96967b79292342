#include "lockstep/base/room.h"

#include <gtest/gtest.h>

#include "lockstep/base/last_failure.h"
#include "lockstep/base/segment.h"

namespace lockstep::base {
namespace {

// A state that ranks of `generation` have made or taken over.
void give_state(ControlPage& page, int region, std::uint32_t generation) {
  page.regions[region].fingerprint.store(1);
  page.regions[region].generation.store(generation);
}

TEST(Room, IsAskedOfRanksThatHaveAState) {
  const Segment segment = Segment::create(2);
  ControlPage& page = segment.control();
  EXPECT_FALSE(ask_for_room(page)) << "they make no steps";
  page.regions[1].generation.store(1);
  EXPECT_FALSE(ask_for_room(page)) << "it was never filled";
  EXPECT_FALSE(is_room_wanted(page, 1));
  give_state(page, 1, 1);
  EXPECT_TRUE(ask_for_room(page));
  EXPECT_TRUE(is_room_wanted(page, 1));
}

// What an earlier generation has left says nothing of this one's program; nor was this one asked.
TEST(Room, IsAskedOfOneGeneration) {
  const Segment segment = Segment::create(1);
  ControlPage& page = segment.control();
  give_state(page, 0, 1);
  EXPECT_TRUE(ask_for_room(page));
  next_generation(page, 1);
  EXPECT_FALSE(is_room_wanted(page, 2));
  EXPECT_FALSE(ask_for_room(page));
  give_state(page, 0, 2);
  EXPECT_TRUE(ask_for_room(page));
  EXPECT_TRUE(is_room_wanted(page, 2));
}

TEST(Room, EndsAGenerationByNoFailure) {
  const Segment segment = Segment::create(1);
  ControlPage& page = segment.control();
  EXPECT_FALSE(has_made_room(page));
  make_room(page, 1);
  EXPECT_TRUE(is_aborted(page, 1));
  EXPECT_TRUE(has_made_room(page));
  EXPECT_EQ(read_failure(page, 1).exit_code, kExitStopped);
  next_generation(page, 1);
  EXPECT_FALSE(has_made_room(page));
  EXPECT_FALSE(last_failure(page));
}

TEST(Room, DoesNotHideAFailure) {
  const Segment segment = Segment::create(1);
  ControlPage& page = segment.control();
  raise_abort(page, 1, {.rank = 0, .cause = "why"});
  make_room(page, 1);
  EXPECT_FALSE(has_made_room(page));
  EXPECT_EQ(read_failure(page, 1).cause, "why");
  EXPECT_FALSE(makes_room({.rank = 0, .exit_code = kExitStopped})) << "a program's own word";
  EXPECT_FALSE(makes_room({.rank = -1})) << "an agent's failure";
}

}  // namespace
}  // namespace lockstep::base
