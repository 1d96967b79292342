#include "lockstep/checkpoint/store/find.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/checkpoint/store/step_folders.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"
#include "tests/unit/checkpoint/store/a_checkpoint.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::ScratchFolder;
using lockstep::testing::usage_error;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using testing::write_step;

void damage(const std::string& checkpoint) { std::filesystem::resize_file(checkpoint + "/model.safetensors", 9); }

TEST(StepFolders, NamesComeBack) {
  EXPECT_EQ(step_name(1234), "step-00001234");
  for (const std::uint64_t step : {0ull, 1ull, 99999999ull, 100000000ull, 4398046511103ull})
    EXPECT_EQ(step_of(step_name(step)), step);
  for (const char* name :
       {"step-1", "step-0000123", "step-0000123x", "step-000012345", "last", "stop-00000001", ".part-1-0"})
    EXPECT_EQ(step_of(name), std::nullopt) << name;
}

TEST(StepFolders, NewestFirstIsFromTheLastOnBackwards) {
  EXPECT_THAT(newest_first({10, 30, 20}, {}), ElementsAre(30, 20, 10));
  EXPECT_THAT(newest_first({10, 20, 30, 40}, 20), ElementsAre(20, 10, 40, 30));
}

TEST(Find, AutoIsTheNewestOrNothing) {
  const ScratchFolder folder;
  EXPECT_FALSE(find(folder.file("nowhere")));
  EXPECT_FALSE(find(folder.path()));
  write_step(folder.path(), 9);
  const std::string newest = write_step(folder.path(), 12);
  EXPECT_EQ(find(folder.path())->path, newest);
  EXPECT_EQ(find(folder.path())->step, 12u);
  EXPECT_THAT(find(folder.path())->skipped, IsEmpty());
  write_step(folder.path(), 10);
  EXPECT_EQ(find(folder.path())->step, 10u) << "the last one that was written";
}

TEST(Find, PassesOverWhatIsDamagedAndSaysWhy) {
  const ScratchFolder folder;
  write_step(folder.path(), 9);
  for (const int step : {10, 11}) damage(write_step(folder.path(), std::uint64_t(step)));
  const std::optional<Found> found = find(folder.path(), "last");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 9u);
  ASSERT_THAT(found->skipped, SizeIs(2));
  EXPECT_EQ(found->skipped[0].path, folder.file("step-00000011"));
  EXPECT_THAT(found->skipped[0].why, AllOf(HasSubstr("model.safetensors"), HasSubstr("offset 9")));
}

TEST(Find, NeverBeginsAnewWhereAllAreDamaged) {
  const ScratchFolder folder;
  damage(write_step(folder.path(), 9));
  for (const char* which : {"auto", "last"})
    EXPECT_THAT(usage_error([&] { find(folder.path(), which); }),
                AllOf(HasSubstr("is whole"), HasSubstr("step-00000009")));
}

TEST(Find, WhatIsAskedForMustBeThere) {
  const ScratchFolder folder;
  EXPECT_THAT(usage_error([&] { find(folder.path(), "last"); }), HasSubstr("there is no checkpoint in"));
  EXPECT_THAT(usage_error([&] { find(folder.path(), "best"); }), HasSubstr("no link 'best'"));
  EXPECT_THAT(usage_error([&] { find(folder.path(), folder.file("step-00000007")); }),
              EndsWith("there is no checkpoint in '" + folder.file("step-00000007") + "'"));
  EXPECT_THAT(usage_error([&] { find("elsewhere", folder.path()); }), HasSubstr("there is no checkpoint in"));
}

TEST(Find, AFileOfPythonsIsNoneAndWhereItBelongsIsSaid) {
  const ScratchFolder folder;
  EXPECT_THAT(usage_error([&] { find("elsewhere", folder.write("checkpoint.pth", "PK")); }),
              AllOf(HasSubstr("there is no checkpoint in"), HasSubstr("checkpoint.pth', which is a file"),
                    HasSubstr("--weights"), Not(HasSubstr("damaged"))));
}

TEST(Find, OneThatHasLostItsManifestIsDamaged) {
  const ScratchFolder folder;
  const std::string path = write_step(folder.path(), 1);
  std::filesystem::remove(path + "/MANIFEST");
  EXPECT_THAT(usage_error([&] { find("elsewhere", path); }), HasSubstr("is damaged"));
}

TEST(Find, BestIsWhereTheLinkLeads) {
  const ScratchFolder folder;
  const std::string best = write_step(folder.path(), 1, {}, 0.9);
  write_step(folder.path(), 2, {}, 0.5);
  EXPECT_EQ(find(folder.path(), "best")->path, best);
  damage(best);
  EXPECT_THAT(usage_error([&] { find(folder.path(), "best"); }), HasSubstr("is damaged"));
}

TEST(Find, APathIsACheckpointOrAFolderOfThem) {
  const ScratchFolder folder;
  const std::string first = write_step(folder.path(), 1);
  write_step(folder.path(), 2);
  EXPECT_EQ(find("elsewhere", first)->step, 1u);
  EXPECT_EQ(find("elsewhere", folder.path())->step, 2u);
  EXPECT_EQ(find("elsewhere", folder.file("last"))->step, 2u) << "the link";
}

}  // namespace
}  // namespace lockstep::checkpoint
