#include "lockstep/data/fetch/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

TEST(Recipe, HasWhatAFetchNeeds) {
  for (const std::string& name : fetched_set_names()) {
    const Recipe recipe = find_recipe(name);
    EXPECT_EQ(recipe.name, name);
    EXPECT_FALSE(recipe.mirrors.empty()) << name;
    for (const std::string& mirror : recipe.mirrors) {
      EXPECT_THAT(mirror, StartsWith("https://"));
      EXPECT_THAT(mirror, EndsWith("/"));
    }
    EXPECT_FALSE(recipe.files.empty()) << name;
    for (const RemoteFile& file : recipe.files) {
      EXPECT_THAT(file.sha256, MatchesRegex("[0-9a-f]{64}"));
      EXPECT_GT(file.bytes, 4000u);
      EXPECT_EQ(file.name.ends_with(".tar.gz"), !recipe.unpacks_to.empty()) << file.name;
    }
  }
}

TEST(Recipe, UnpacksToWhereTheReaderLooks) {
  EXPECT_EQ(find_recipe("cifar10").unpacks_to, "cifar-10-batches-bin");
  EXPECT_EQ(find_recipe("mnist").unpacks_to, "");
}

TEST(Recipe, SuggestsTheNearestName) {
  EXPECT_THAT(testing::usage_error([] { find_recipe("cifar-10"); }),
              HasSubstr("unknown data set 'cifar-10': did you mean 'cifar10'?"));
  EXPECT_THAT(testing::usage_error([] { find_recipe("digits"); }), HasSubstr("unknown data set 'digits'"));
}

TEST(Recipe, TakesAnotherMirror) {
  EXPECT_THAT(with_mirror(find_recipe("mnist"), "http://here:80/mnist").mirrors, ElementsAre("http://here:80/mnist/"));
  EXPECT_THAT(with_mirror(find_recipe("mnist"), "https://here/").mirrors, ElementsAre("https://here/"));
  for (const char* wrong : {"", "here", "ftp://here/", "file:///data/", "/data"}) {
    EXPECT_THAT(testing::usage_error([&] { with_mirror(find_recipe("mnist"), wrong); }),
                HasSubstr("mirror '" + std::string(wrong) + "': an address that begins with https:// or http://"));
  }
}

TEST(Recipe, RefusesAMirrorThatIsNoAddress) {
  const auto error = [](const std::string& mirror) {
    return testing::usage_error([&] { with_mirror(find_recipe("mnist"), mirror); });
  };
  EXPECT_THAT(error("http://here:99999/"), StartsWith("mirror 'http://here:99999/': no address: "));
  EXPECT_THAT(error("http://here:x/"), HasSubstr("no address: "));
  EXPECT_THAT(error("http://:80/mnist/"), HasSubstr("no address: "));
  EXPECT_EQ(error("http://here/\r\nHost: there"),
            "mirror 'http://here/\\r\\nHost: there': an address without blanks and control characters expected");
  EXPECT_THAT(error("http://here/a b"), HasSubstr("without blanks"));
}

}  // namespace
}  // namespace lockstep::data
