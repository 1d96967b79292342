#include "lockstep/data/fetch/unpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/scratch_folder.h"
#include "tests/support/tar_file.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TarEntry;

TEST(EntryObjection, IsAboutTheName) {
  EXPECT_EQ(entry_objection("set", "set"), "");
  EXPECT_EQ(entry_objection("set/", "set"), "");
  EXPECT_EQ(entry_objection("./set/a/b.bin", "set"), "");
  EXPECT_EQ(entry_objection("/set/a", "set"), "an absolute name");
  EXPECT_EQ(entry_objection("set/../a", "set"), "'..' in its name");
  EXPECT_EQ(entry_objection("../set/a", "set"), "'..' in its name");
  for (const char* name : {"", ".", "other/a", "settee", "set.bin"}) {
    EXPECT_EQ(entry_objection(name, "set"), "not below 'set'") << name;
  }
}

class Unpack : public ::testing::Test {
 protected:
  std::string refusal(const std::vector<TarEntry>& entries) {
    folder_.write("set.tar.gz", testing::tar_gz(entries));
    std::string message =
        testing::usage_error([&] { unpack(folder_.file("set.tar.gz"), "set", folder_.file("out/set")); });
    EXPECT_EQ(folder_.entries(), 2u) << "only the archive and the folder out";
    EXPECT_TRUE(fs::is_empty(folder_.file("out")));
    return message;
  }

  testing::ScratchFolder folder_;

 private:
  const bool made_ = fs::create_directories(folder_.file("out"));
};

TEST_F(Unpack, KeepsFilesAndFolders) {
  folder_.write("set.tar.gz", testing::tar_gz({{"set/deep/er/a.bin", std::string(200'000, 'a')},
                                               {.name = "set/empty", .folder = true},
                                               {"set/b.bin", ""}}));
  unpack(folder_.file("set.tar.gz"), "set", folder_.file("out/other"));
  EXPECT_EQ(testing::read_file(folder_.file("out/other/deep/er/a.bin")), std::string(200'000, 'a'));
  EXPECT_TRUE(fs::is_directory(folder_.file("out/other/empty")));
  EXPECT_TRUE(fs::is_empty(folder_.file("out/other/b.bin")));
  EXPECT_EQ(sums_objection(folder_.file("out/other")), "");
}

TEST_F(Unpack, RefusesToLeaveTheFolder) {
  EXPECT_THAT(refusal({{"set/a", "1"}, {"../evil", "2"}}), HasSubstr("entry '../evil': '..' in its name"));
  EXPECT_THAT(refusal({{folder_.file("evil"), "2"}}), HasSubstr("an absolute name"));
  EXPECT_THAT(refusal({{"elsewhere/a", "2"}}), HasSubstr("entry 'elsewhere/a': not below 'set'"));
}

TEST_F(Unpack, RefusesLinks) {
  const std::string words = "a link or device; only files and folders are unpacked";
  EXPECT_THAT(refusal({{.name = "set/link", .symlink = ".."}, {"set/link/evil", "2"}}), HasSubstr(words));
  EXPECT_THAT(refusal({{.name = "set/link", .symlink = "/etc/passwd"}}), HasSubstr(words));
  EXPECT_THAT(refusal({{"set/a", "1"}, {.name = "set/b", .hardlink = "set/a"}}), HasSubstr(words));
}

TEST_F(Unpack, RefusesDamage) {
  const std::string whole = testing::tar_gz({{"set/a", std::string(200'000, 'a')}, {"set/b", "1"}});
  for (const std::string& bytes :
       {whole.substr(0, whole.size() / 2), std::string("no archive at all"), std::string()}) {
    folder_.write("set.tar.gz", bytes);
    EXPECT_THAT(testing::usage_error([&] { unpack(folder_.file("set.tar.gz"), "set", folder_.file("out/set")); }),
                HasSubstr("'" + folder_.file("set.tar.gz") + "': damaged archive"));
    EXPECT_TRUE(fs::is_empty(folder_.file("out")));
  }
}

}  // namespace
}  // namespace lockstep::data
