#include "lockstep/checkpoint/files/name_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/checkpoint/files/weights_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"
#include "tests/unit/checkpoint/files/a_state_dict.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::usage_error;
using Renamed = std::map<std::string, std::string>;

Renamed with(const std::string& text, const std::vector<std::string>& names) {
  return renamed(names, name_map(text), "w.pt");
}

TEST(NameMap, RenamesKeepsAndLeavesOut) {
  EXPECT_EQ(with("", {"a", "b"}), (Renamed{{"a", "a"}, {"b", "b"}}));
  EXPECT_EQ(with("backbone.*=*,head.fc.*=fc.*,aux.*=", {"backbone.conv1.weight", "head.fc.bias", "aux.w", "n"}),
            (Renamed{{"backbone.conv1.weight", "conv1.weight"}, {"head.fc.bias", "fc.bias"}, {"n", "n"}}));
  EXPECT_EQ(with("*.gamma=*.weight,*.beta=*.bias", {"bn.gamma", "bn.beta"}),
            (Renamed{{"bn.gamma", "bn.weight"}, {"bn.beta", "bn.bias"}}));
  EXPECT_EQ(with("a=b,b=a", {"a", "b"}), (Renamed{{"a", "b"}, {"b", "a"}})) << "they change places";
  EXPECT_EQ(with("layer.0.*=stem.*,layer.*=body.*", {"layer.0.w", "layer.1.w"}),
            (Renamed{{"layer.0.w", "stem.w"}, {"layer.1.w", "body.1.w"}}))
      << "the first rule that fits";
  EXPECT_EQ(with("ab*ba=*", {"aba", "abba", "abcba"}), (Renamed{{"aba", "aba"}, {"abcba", "c"}}))
      << "both ends do not overlap, and a name of nothing is none";
}

TEST(NameMap, IsAListOrAFile) {
  const ScratchFolder folder;
  folder.write("map", "# of timm\n\nhead.*=fc.*\r\nold=new\n");
  EXPECT_EQ(with(folder.file("map"), {"head.w", "old"}), (Renamed{{"head.w", "fc.w"}, {"old", "new"}}));
  folder.write("wrong", "a=b\nhead.*\n");
  EXPECT_EQ(
      usage_error([&] { name_map(folder.file("wrong")); }),
      "name map: '" + folder.file("wrong") +
          "', line 2: 'head.*': THEIRS=OURS expected, with at most one star, and in OURS only where THEIRS has one");
  folder.write("empty", "# nothing\n");
  EXPECT_THAT(usage_error([&] { name_map(folder.file("empty")); }), HasSubstr("has no rules"));
  EXPECT_THAT(usage_error([&] { name_map(folder.file("none")); }), HasSubstr("is no file that can be read"));
}

TEST(NameMap, RefusesWhatHasNoMeaning) {
  for (const char* rule : {"=a", "a*b*=c", "a=b*", "a*=b**", "a=b,c"})
    EXPECT_THAT(usage_error([&] { name_map(rule); }), HasSubstr("THEIRS=OURS expected")) << rule;
  EXPECT_EQ(usage_error([] {
              with("fc.weigt=fc.w", {"fc.weight", "fc.bias"});
            }),
            "name map: 'fc.weigt' fits no tensor of 'w.pt'; did you mean 'fc.weight'?");
  EXPECT_EQ(usage_error([] { with("a=b", {"a", "b"}); }), "name map: 'a' and 'b' of 'w.pt' would both be 'b'");
  EXPECT_EQ(usage_error([] { with("*=", {"a", "b"}); }), "name map: no tensor of 'w.pt' is left");
}

TEST(NameMap, IsThatOfAFileOfWeights) {
  const ScratchFolder folder;
  const std::string path = folder.write("a.pt", small_archive(testing::pt::ordered(small_entries())));
  const WeightsFile file(path, name_map("w=fc.weight,b=fc.bias,t="));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file.tensors()) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre("fc.bias", "fc.weight", "n"));
  EXPECT_EQ(numbers<float>(file, "fc.weight"), numbers<float>(WeightsFile(path), "w"));
}

}  // namespace
}  // namespace lockstep::checkpoint
