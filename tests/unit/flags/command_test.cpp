#include "lockstep/flags/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/unit/flags/small_program.h"

namespace lockstep::flags {
namespace {

using ::testing::ElementsAre;

std::string refusal_of_place(const Command& root, const std::vector<std::string>& words) {
  try {
    find_place(root, words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Command, HelpListsTheCommands) {
  SmallOptions options;
  EXPECT_EQ(help(small_program(options)),
            "usage: toy COMMAND\n"
            "\n"
            "commands:\n"
            "  train  train: a model\n"
            "  run    run a program\n"
            "  data   sets\n"
            "  more   another program's\n"
            "\n"
            "That is the end.\n");
}

TEST(Command, PlacesAreThoseOfAllCommands) {
  SmallOptions options;
  const Command root = small_program(options);
  std::vector<std::string> paths;
  for (const Place& place : places_of(root)) paths.push_back(place.path);
  EXPECT_THAT(paths, ElementsAre("toy", "toy train", "toy run", "toy data", "toy data fetch", "toy more"));
  EXPECT_THAT(names_of(root), ElementsAre("train", "run", "data", "more"));
}

TEST(Command, PlaceOfWords) {
  SmallOptions options;
  const Command root = small_program(options);
  EXPECT_EQ(find_place(root, {}).command, &root);
  EXPECT_EQ(find_place(root, {"data", "fetch"}).path, "toy data fetch");
  EXPECT_EQ(find_place(root, {"data", "fetch"}).command->summary, "download one");
  EXPECT_EQ(refusal_of_place(root, {"tran"}),
            "unknown command 'tran': did you mean 'train'? (one of train, run, data, more)");
  EXPECT_EQ(refusal_of_place(root, {"train", "x"}), "'toy train' has no commands, found 'x'");
}

}  // namespace
}  // namespace lockstep::flags
