#include "lockstep/checkpoint/store/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/checkpoint/store/verify.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"
#include "tests/unit/checkpoint/store/a_checkpoint.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::write_step;

TEST(ListCheckpoints, NewestFirstWithLinksAndFaults) {
  const lockstep::testing::ScratchFolder folder;
  write_step(folder.path(), 5, {}, 0.5);
  write_step(folder.path(), 7, {}, 0.25);
  const std::string cut = write_step(folder.path(), 6);
  std::ofstream(cut + "/MANIFEST") << "lockstep-checkpoint 1\n";
  const std::vector<Listed> all = list(folder.path());
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].step, 6u) << "was written last";
  EXPECT_TRUE(all[0].last);
  EXPECT_THAT(all[0].fault, HasSubstr("MANIFEST"));
  EXPECT_EQ(all[1].step, 5u);
  EXPECT_TRUE(all[1].best);
  EXPECT_EQ(all[1].metric, 0.5);
  EXPECT_EQ(all[1].weights, read_manifest(all[1].path).weights);
  EXPECT_EQ(all[2].step, 7u);
  EXPECT_FALSE(all[2].best || all[2].last);

  const std::string text = list_as_text(all);
  EXPECT_THAT(text, AllOf(HasSubstr("6           damaged: "), HasSubstr(all[1].weights + "  best\n")));
  const auto json = nlohmann::json::parse(list_as_json(all)).at("checkpoints");
  EXPECT_EQ(json.size(), 3u);
  EXPECT_EQ(json[1].at("metric"), 0.5);
  EXPECT_EQ(json[1].at("best"), true);
  EXPECT_TRUE(json[0].contains("fault"));
}

TEST(ListCheckpoints, NoneIsSaidAndNoFolderRefused) {
  const lockstep::testing::ScratchFolder folder;
  EXPECT_EQ(list_as_text(list(folder.path())), "no checkpoints\n");
  EXPECT_THAT(lockstep::testing::usage_error([&] { list(folder.file("none")); }), HasSubstr("is no folder"));
}

TEST(InspectCheckpoint, SaysWhatItHolds) {
  const lockstep::testing::ScratchFolder folder;
  const std::string path = write_step(folder.path(), 5, {}, 0.5);
  const Manifest manifest = read_manifest(path);
  SavedState state = read_state(path);
  state.place = {{"epoch", 2}};
  EXPECT_THAT(contents_as_text(manifest, state), HasSubstr("epoch         2\n"));
  EXPECT_THAT(contents_as_text(manifest, state),
              AllOf(HasSubstr("step          5\n"), HasSubstr("metric        0.5\n"),
                    HasSubstr("kept          loader, 3 bytes"), HasSubstr("model.safetensors, "),
                    HasSubstr("  24          fc.weight\n")));
  const auto json = nlohmann::json::parse(contents_as_json(manifest, state));
  EXPECT_EQ(json.at("shards"), 4);
  EXPECT_EQ(json.at("place").at("epoch"), 2);
  EXPECT_EQ(json.at("extra").at("mine")[1], 2);
  EXPECT_EQ(json.at("files")[0].at("tensors").at("fc.bias"), 12);
}

}  // namespace
}  // namespace lockstep::checkpoint
