#include "lockstep/data/sets/known_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSubsetOf;

TEST(KnownSets, HaveAllThatIsAskedOfThem) {
  std::set<std::string> names;
  for (const KnownSet& set : known_sets()) {
    EXPECT_TRUE(names.insert(set.name).second) << set.name << " twice";
    EXPECT_TRUE(set.task.channels == 1 || set.task.channels == 3) << set.name;
    EXPECT_EQ(set.task.classes > 0 && set.task.height > 0 && set.task.width > 0, !has_named_parts(set)) << set.name;
    EXPECT_EQ(set.folder.empty(), is_drawn(set) || has_named_parts(set)) << set.name;
    const auto names_given = std::int64_t(set.class_names.size());
    EXPECT_TRUE(names_given == set.task.classes || (names_given == 0 && set.files != SetFiles::idx)) << set.name;
    EXPECT_EQ(set.mirrors.empty(), set.downloads.empty()) << set.name;
    EXPECT_TRUE(set.mirrors.empty() || !set.found.empty()) << set.name << ": what is fetched can be inspected";
  }
}

TEST(KnownSets, AreFoundByName) {
  for (const KnownSet& set : known_sets()) EXPECT_EQ(&find_set(set.name), &set);
  EXPECT_THAT(testing::usage_error([] { find_set("cifar-10"); }),
              HasSubstr("unknown data set 'cifar-10': did you mean 'cifar10'?"));
}

TEST(KnownSets, ThoseToFetchAreSomeOfAll) {
  EXPECT_EQ(set_names().size(), known_sets().size());
  EXPECT_THAT(fetched_set_names(), IsSubsetOf(set_names()));
  EXPECT_THAT(fetched_set_names(), Contains("mnist"));
}

}  // namespace
}  // namespace lockstep::data
