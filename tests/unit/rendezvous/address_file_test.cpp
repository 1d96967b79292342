#include "lockstep/rendezvous/address_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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

TEST_F(AddressFileTest, InAFolderThatIsNotThereIsRefused) {
  EXPECT_THAT(usage_error([&] { const AddressFile file(folder_.file("no/meeting"), "a"); }),
              HasSubstr("rank 0 cannot write it: No such file or directory"));
}

}  // namespace
}  // namespace lockstep::rendezvous
