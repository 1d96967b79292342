#include "lockstep/base/text.h"

#include <gtest/gtest.h>

namespace lockstep::base {
namespace {

TEST(EditDistance, CountsEachKindOfEdit) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("convnet", "convnet"), 0);
  EXPECT_EQ(edit_distance("convet", "convnet"), 1);
  EXPECT_EQ(edit_distance("convnett", "convnet"), 1);
  EXPECT_EQ(edit_distance("comvnet", "convnet"), 1);
  EXPECT_EQ(edit_distance("covnnet", "convnet"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Nearest, TakesTheFirstOfTheClosest) {
  EXPECT_EQ(nearest("adma", {"sgd", "adam", "adamw"}), "adam");
  EXPECT_EQ(nearest("x", {"a", "b"}), "a");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(UnknownName, SaysWhatWouldBeRight) {
  EXPECT_EQ(unknown_name("model", "convnett", {"mlp", "convnet"}),
            "unknown model 'convnett': did you mean 'convnet'? (one of mlp, convnet)");
  EXPECT_EQ(unknown_name("model", "x", {}), "unknown model 'x'");
}

TEST(Join, PutsSeparatorsBetween) {
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(join({"a"}), "a");
  EXPECT_EQ(join({"a", "a", ""}, "-"), "a-a-");
}

}  // namespace
}  // namespace lockstep::base
