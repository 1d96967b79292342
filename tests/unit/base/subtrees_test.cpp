#include "lockstep/base/subtrees.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::base {
namespace {

using Spans = std::vector<ShardSpan>;

TEST(WholeSubtrees, AreTheLargestOnesOfTheTree) {
  EXPECT_EQ(whole_subtrees(4, {0, 2}), (Spans{{0, 2}}));
  EXPECT_EQ(whole_subtrees(4, {0, 3}), (Spans{{0, 2}, {2, 3}}));
  EXPECT_EQ(whole_subtrees(4, {3, 4}), (Spans{{3, 4}}));
  EXPECT_EQ(whole_subtrees(9, {3, 6}), (Spans{{3, 4}, {4, 6}}));
  EXPECT_EQ(whole_subtrees(9, {0, 9}), (Spans{{0, 9}}));
}

}  // namespace
}  // namespace lockstep::base
