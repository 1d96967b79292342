#include "lockstep/rendezvous/first_failure.h"

#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

using Kind = FailureKind;

TEST(FirstFailure, TheEarliestWhereTheClocksCanTell) {
  EXPECT_EQ(first_of({{Kind::ended, 5.0, 0.001}, {Kind::killed, 6.0, 0.001}}), 0u);
  EXPECT_EQ(first_of({{Kind::killed, 6.0, 0.001}, {Kind::ended, 5.0, 0.001}}), 1u);
}

TEST(FirstFailure, WithinTheErrorOfTheClocksTheKindDecides) {
  EXPECT_EQ(first_of({{Kind::told, 5.000, 0.010}, {Kind::killed, 5.015, 0.010}}), 1u);
  EXPECT_EQ(first_of({{Kind::ended, 5.000, 0.010}, {Kind::told, 5.015, 0.010}}), 1u);
  EXPECT_EQ(first_of({{Kind::told, 5.000, 0.010}, {Kind::told, 5.015, 0.010}}), 0u);
}

TEST(FirstFailure, WhoFollowsABrokenConnectionIsNeverFirst) {
  // Also where its clock runs behind by minutes, and the estimate of that is wrong.
  EXPECT_EQ(first_of({{Kind::connection, 5.0, 0.001}, {Kind::killed, 300.0, 0.001}}), 1u);
  EXPECT_EQ(first_of({{Kind::connection, 5.0, 0.001}, {Kind::node_lost, 9.0, 0.001}}), 1u);
  EXPECT_EQ(first_of({{Kind::connection, 6.0, 0.001}, {Kind::connection, 5.0, 0.001}}), 1u);
}

TEST(FirstFailure, WordsOfAFollower) {
  EXPECT_TRUE(speaks_of_connection("RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:4711"));
  EXPECT_TRUE(speaks_of_connection("Read error [127.0.0.1]:23: Connection reset by peer"));
  EXPECT_FALSE(speaks_of_connection("ValueError: bad batch"));
}

}  // namespace
}  // namespace lockstep::rendezvous
