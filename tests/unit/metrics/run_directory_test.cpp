#include "lockstep/metrics/run_directory.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "sample_events.h"

namespace lockstep::metrics {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename());
  return names;
}

TEST(RunDirectory, IsMadeWithItsParentsAndHoldsTheConfiguration) {
  TemporaryFolder folder;
  const RunDirectory run = RunDirectory::create(folder.file("a/b/c"), "{}\n", IfUsed::refuse);
  EXPECT_EQ(run.path(), folder.file("a/b/c"));
  EXPECT_EQ(read_all(folder.file("a/b/c/config.json")), "{}\n");
  EXPECT_THAT(names_in(run.path()), UnorderedElementsAre("config.json"));
}

TEST(RunDirectory, AnUnusedFolderIsTakenAsItIs) {
  TemporaryFolder folder;
  put(folder.file("notes.txt"), "mine");
  RunDirectory::create(folder.path(), "{}", IfUsed::refuse);
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("config.json", "notes.txt"));
}

TEST(RunDirectory, AUsedOneIsRefusedAndStaysAsItWas) {
  for (const char* file : {"config.json", "metrics.jsonl"}) {
    TemporaryFolder folder;
    put(folder.file(file), "old");
    EXPECT_THAT([&] { RunDirectory::create(folder.path(), "{}", IfUsed::refuse); },
                ThrowsMessage<UsageError>(AllOf(HasSubstr(folder.path()), HasSubstr("--overwrite"))));
    EXPECT_EQ(read_all(folder.file(file)), "old");
    EXPECT_EQ(names_in(folder.path()).size(), 1u);
  }
}

TEST(RunDirectory, AJobThatWasStartedAgainGoesOnInItsOwn) {
  TemporaryFolder folder;
  put(folder.file("config.json"), "mine");
  put(folder.file("metrics.jsonl"), "line\n");
  RunDirectory::create(folder.path(), "mine", IfUsed::go_on);
  EXPECT_EQ(read_all(folder.file("metrics.jsonl")), "line\n");
  EXPECT_THAT([&] { RunDirectory::create(folder.path(), "other", IfUsed::go_on); },
              ThrowsMessage<UsageError>(HasSubstr("another configuration")));
  EXPECT_EQ(read_all(folder.file("config.json")), "mine");
  // Killed before it made its folder.
  RunDirectory::create(folder.file("new"), "mine", IfUsed::go_on);
  EXPECT_EQ(read_all(folder.file("new/config.json")), "mine");
}

TEST(RunDirectory, OverwriteRemovesOnlyWhatARunMade) {
  TemporaryFolder folder;
  for (const char* file : {"config.json", "metrics.jsonl", "metrics.csv", "events.out.tfevents.17.lockstep"})
    put(folder.file(file), "old");
  for (const char* file : {"notes.txt", "events.out.tfevents.17.otherhost", "model.safetensors"})
    put(folder.file(file), "mine");
  fs::create_directory(folder.file("log"));
  put(folder.file("log/rank_0"), "mine");
  RunDirectory::create(folder.path(), "new", IfUsed::overwrite);
  EXPECT_EQ(read_all(folder.file("config.json")), "new");
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("config.json", "notes.txt", "model.safetensors", "log",
                                                            "events.out.tfevents.17.otherhost"));
  EXPECT_EQ(read_all(folder.file("log/rank_0")), "mine");
}

TEST(RunDirectory, PathsThatCannotBeWrittenAreNamed) {
  TemporaryFolder folder;
  put(folder.file("file"), "");
  for (const std::string& path : {folder.file("file"), folder.file("file/below"), std::string("/proc/lockstep_run")})
    EXPECT_THAT([&] { RunDirectory::create(path, "{}", IfUsed::refuse); },
                ThrowsMessage<UsageError>(HasSubstr("'" + path + "'")));
  EXPECT_THROW(RunDirectory::create("", "{}", IfUsed::refuse), UsageError);
}

TEST(RunDirectory, NothingIsRemovedWhenTheNewFilesCannotBeWritten) {
  TemporaryFolder folder;
  put(folder.file("metrics.jsonl"), "old");
  // A folder that is not empty stands where the new configuration is written first.
  fs::create_directories(folder.file("config.json.new/x"));
  EXPECT_THAT([&] { RunDirectory::create(folder.path(), "{}", IfUsed::overwrite); },
              ThrowsMessage<UsageError>(HasSubstr("cannot be written")));
  EXPECT_EQ(read_all(folder.file("metrics.jsonl")), "old");
}

}  // namespace
}  // namespace lockstep::metrics
