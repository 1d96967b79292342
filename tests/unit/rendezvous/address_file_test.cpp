#include "lockstep/rendezvous/address_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::rendezvous {
namespace {

using lockstep::testing::usage_error;
using ::testing::HasSubstr;

class AddressFileTest : public ::testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  std::string refusal() const {
    return usage_error([&] { const AddressFile file(path_, "10.0.0.1:1 a"); });
  }

  const testing::ScratchFolder folder_;
  const std::string path_ = folder_.file("meeting");
};

TEST_F(AddressFileTest, IsThereAsLongAsRanksMeet) {
  EXPECT_EQ(AddressFile::read(path_), std::nullopt);
  {
    const AddressFile file(path_, "10.0.0.1:1 a");
    EXPECT_EQ(AddressFile::read(path_), "10.0.0.1:1 a");
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(AddressFileTest, MayBeThereEmpty) {
  write("");
  EXPECT_EQ(AddressFile::read(path_), std::nullopt);
  const AddressFile file(path_, "10.0.0.1:1 a");
  EXPECT_EQ(AddressFile::read(path_), "10.0.0.1:1 a");
}

TEST_F(AddressFileTest, OfAnEarlierStartIsToldAndLeftAlone) {
  write("lockstep rank 0 10.0.0.1:1 a\n");
  EXPECT_THAT(refusal(), HasSubstr("is not empty; where an earlier start has left it, remove it"));
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(AddressFileTest, OfAnotherRankZeroThatMeetsNowIsTold) {
  const AddressFile file(path_, "10.0.0.1:1 a");
  EXPECT_THAT(refusal(), HasSubstr("another process is rank 0"));
  EXPECT_EQ(AddressFile::read(path_), "10.0.0.1:1 a");
}

TEST_F(AddressFileTest, ThatIsHalfWrittenIsNotThereYet) {
  write("lockstep rank 0 10.0.");
  EXPECT_EQ(AddressFile::read(path_), std::nullopt);
  write("lock");
  EXPECT_EQ(AddressFile::read(path_), std::nullopt);
}

TEST_F(AddressFileTest, OfSomebodyElseIsRefused) {
  for (const std::string& text : {std::string("weights\n"), "lockstep rank 0 " + std::string(600, 'x')}) {
    write(text);
    EXPECT_THAT(usage_error([&] { (void)AddressFile::read(path_); }), HasSubstr("is no file in which ranks meet"));
  }
}

// Somebody followed the advice to remove it, while its rank 0 still waited.
TEST_F(AddressFileTest, ThatAnotherRankZeroHasMadeSinceStays) {
  std::optional<AddressFile> first(std::in_place, path_, "10.0.0.1:1 a");
  std::filesystem::remove(path_);
  const AddressFile second(path_, "10.0.0.2:2 b");
  first.reset();
  EXPECT_EQ(AddressFile::read(path_), "10.0.0.2:2 b");
}

TEST_F(AddressFileTest, NothingIsFollowedOrWaitedFor) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(usage_error([&] { (void)AddressFile::read(path_); }), HasSubstr("is no file"));
  EXPECT_THAT(refusal(), HasSubstr("is no file"));
  std::filesystem::remove(path_);
  std::filesystem::create_symlink(folder_.file("elsewhere"), path_);
  EXPECT_THAT(refusal(), HasSubstr("rank 0 cannot write it: "));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("elsewhere")));
}

TEST_F(AddressFileTest, OfAnotherUserIsNotBelieved) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  write("lockstep rank 0 10.0.0.1:1 a\n");
  ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_THAT(usage_error([&] { (void)AddressFile::read(path_); }), HasSubstr("belongs to user 65534"));
  EXPECT_THAT(refusal(), HasSubstr("belongs to user 65534"));
}

TEST_F(AddressFileTest, InAFolderThatIsNotThereIsRefused) {
  EXPECT_THAT(usage_error([&] { const AddressFile file(folder_.file("no/meeting"), "a"); }),
              HasSubstr("rank 0 cannot write it: No such file or directory"));
}

}  // namespace
}  // namespace lockstep::rendezvous
