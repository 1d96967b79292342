#include "lockstep/data/readers/folder_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "lockstep/data/readers/image_folder.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"
#include "tests/support/wait_until.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;
using testing::usage_error;

std::int64_t changed_ns(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  return info.st_ctim.tv_sec * 1'000'000'000 + info.st_ctim.tv_nsec;
}

// A set, an index file beside it, and a clock that is far enough ahead for everything to be settled.
class CachedIndex : public ::testing::Test {
 protected:
  CachedIndex() {
    for (const char* name : {"a/1.png", "a/2.png", "a/deep/3.jpg", "b/4.jpeg", "b/notes.txt"}) set_.write(name, "");
    elsewhere_.write("pictures/5.png", "");
    fs::create_directory_symlink(elsewhere_.file("pictures"), set_.file("b/link"));
    fs::create_symlink(elsewhere_.file("nothing-yet"), set_.file("b/dangling"));
  }

  FolderIndex cached() const { return cached_index(set_.path(), cache_, later()); }

  static std::int64_t later() {
    const auto now = std::chrono::system_clock::now() + std::chrono::seconds(10);
    return std::chrono::nanoseconds(now.time_since_epoch()).count();
  }

  // The clock of the file system goes on by a tick.
  void tick() const {
    const std::int64_t before = changed_ns(other_.write("clock", ""));
    testing::wait_until([&] { return changed_ns(other_.write("clock", "")) > before; });
  }

  // An index that is like the one on disk but for a name: who returns it has read it, not the folders.
  void mark_cache() const {
    FolderIndex index = decode_index(read_file(cache_), cache_);
    index.folders[0].pictures[0] = "mark.png";
    other_.write("index", encode(index));
  }

  bool is_marked(const FolderIndex& index) const { return index.folders[0].pictures[0] == "mark.png"; }

  const ScratchFolder set_, elsewhere_, other_;
  const std::string cache_ = other_.file("index");
};

TEST_F(CachedIndex, IsWrittenOnceAndThenReadInsteadOfTheFolders) {
  const FolderIndex walked = walk_folders(set_.path());
  EXPECT_EQ(walked.folders.size(), 4u);
  EXPECT_EQ(cached(), walked);
  EXPECT_EQ(decode_index(read_file(cache_), cache_), walked);
  mark_cache();
  EXPECT_TRUE(is_marked(cached()));
}

TEST_F(CachedIndex, NoticesEveryChange) {
  const std::vector<std::function<void()>> changes = {
      [&] { set_.write("a/0.png", ""); },
      [&] { fs::remove(set_.file("a/2.png")); },
      [&] { fs::rename(set_.file("a/0.png"), set_.file("a/00.png")); },
      [&] { fs::rename(set_.file("a/deep/3.jpg"), set_.file("a/3.jpg")); },
      [&] { set_.write("a/deep/deeper/6.png", ""); },
      [&] { set_.write("c/7.png", ""); },
      [&] { fs::rename(set_.file("c"), set_.file("d")); },
      [&] { fs::remove_all(set_.file("d")); },
      [&] { elsewhere_.write("pictures/8.png", ""); },
      [&] { elsewhere_.write("nothing-yet/9.png", ""); },
      [&] { fs::remove_all(elsewhere_.file("nothing-yet")); },
      [&] {  // another folder behind the same link
        fs::rename(elsewhere_.file("pictures"), elsewhere_.file("old"));
        elsewhere_.write("pictures/5.png", "");
      },
      [&] {  // as rsync and tar do it: the folder's time is set back
        const fs::file_time_type before = fs::last_write_time(set_.file("b"));
        set_.write("b/10.png", "");
        fs::last_write_time(set_.file("b"), before);
      },
  };
  cached();
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const FolderIndex before = cached();
    tick();
    mark_cache();
    ASSERT_TRUE(is_marked(cached())) << i;
    changes[i]();
    EXPECT_FALSE(is_current(before, set_.path())) << i;
    const FolderIndex after = cached();
    EXPECT_EQ(after, walk_folders(set_.path())) << i;
    EXPECT_FALSE(is_marked(after)) << i;
    EXPECT_NE(after, before) << i;
  }
}

TEST_F(CachedIndex, AFolderThatHasJustChangedIsNotTrusted) {
  const std::int64_t newest = changed_ns(set_.file("b"));
  const FolderIndex index = walk_folders(set_.path());
  EXPECT_FALSE(is_settled(index, newest));
  EXPECT_FALSE(is_settled(index, newest + 1'900'000'000));
  EXPECT_TRUE(is_settled(index, newest + 2'100'000'000));
  cached_index(set_.path(), cache_, newest + 1'000'000'000);
  EXPECT_FALSE(fs::exists(cache_));
  const ImageFolder set(set_.path(), {.index_cache = cache_});
  EXPECT_EQ(set.size(), 5);
}

TEST_F(CachedIndex, ALinkThatCannotBeFollowedAnyMoreIsNamed) {
  const FolderIndex index = cached();
  const std::string target = elsewhere_.file("nothing-yet");
  fs::create_symlink(target, target);
  EXPECT_EQ(usage_error([&] { is_current(index, set_.path()); }),
            "cannot look at '" + set_.file("b/dangling") + "': Too many levels of symbolic links");
  EXPECT_EQ(usage_error([&] { walk_folders(set_.path()); }), usage_error([&] { cached(); }));
}

TEST_F(CachedIndex, MayLieInTheRootOfTheSet) {
  const std::string inside = set_.file(".index");
  const FolderIndex index = cached_index(set_.path(), inside, later());
  EXPECT_TRUE(fs::exists(inside));
  EXPECT_TRUE(is_current(index, set_.path()));
  EXPECT_EQ(usage_error([&] { cached_index(set_.path(), set_.file("a/index"), later()); }),
            "index file '" + set_.file("a/index") + "': it would change the class folder that it is in; put it into '" +
                set_.path() + "' or elsewhere");
}

TEST_F(CachedIndex, DamageIsNoticedAndRepaired) {
  const FolderIndex index = cached();
  const std::string whole = read_file(cache_);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THAT(usage_error([&] { decode_index(whole.substr(0, length), "f"); }), HasSubstr("'f': ")) << length;
    std::string changed = whole;
    changed[length] = char(changed[length] ^ 0x10);
    EXPECT_THAT(usage_error([&] { decode_index(changed, "f"); }), HasSubstr("'f': ")) << length;
  }
  other_.write("index", whole.substr(0, 60));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(cached(), index);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: image index '" + cache_ + "': truncated or damaged, its checksum is wrong; it is made anew\n");
  EXPECT_EQ(read_file(cache_), whole);
}

TEST_F(CachedIndex, OfAnotherSetIsReplaced) {
  cached();
  const ScratchFolder another;
  another.write("a/1.png", "");
  another.write("b/4.jpeg", "");
  const FolderIndex index = cached_index(another.path(), cache_, later());
  EXPECT_EQ(index, walk_folders(another.path()));
}

TEST_F(CachedIndex, AnyNumberMayMakeItAtOnce) {
  const FolderIndex index = walk_folders(set_.path());
  std::vector<std::thread> ranks;
  std::vector<FolderIndex> found(8);
  for (FolderIndex& one : found) ranks.emplace_back([&] { one = cached(); });
  for (std::thread& rank : ranks) rank.join();
  for (const FolderIndex& one : found) EXPECT_EQ(one, index);
  EXPECT_EQ(decode_index(read_file(cache_), cache_), index);
  EXPECT_EQ(other_.entries(), 1u);
}

TEST_F(CachedIndex, AFileThatCannotBeIsAnError) {
  EXPECT_EQ(usage_error([&] { cached_index(set_.path(), other_.file("no/index"), later()); }),
            "cannot write '" + other_.file("no/index") + "': No such file or directory");
  EXPECT_EQ(usage_error([&] { cached_index(set_.path(), other_.path(), later()); }),
            "cannot read '" + other_.path() + "': not a regular file");
  EXPECT_EQ(usage_error([&] { cached_index(set_.file("gone"), cache_, later()); }),
            "cannot read the folder '" + set_.file("gone") + "': No such file or directory");
}

// A sound checksum does not make the rest sound.
TEST(DecodeIndex, RefusesLabelsWithoutClass) {
  const FolderIndex index{.classes = {"a"}, .folders = {{.path = "a", .label = 1}}};
  EXPECT_EQ(usage_error([&] { decode_index(encode(index), "f"); }), "'f': a label without class");
}

}  // namespace
}  // namespace lockstep::data
