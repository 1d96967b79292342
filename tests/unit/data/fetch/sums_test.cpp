#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/fetch/sha256.h"
#include "lockstep/data/fetch/sums_file.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::data {
namespace {

// FIPS 180-4's examples.
constexpr const char* kOfAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* kOfNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

TEST(Sha256, IsTheStandards) {
  EXPECT_EQ(Sha256().digits(), kOfNothing);
  Sha256 sum;
  sum.add("a", 1);
  sum.add("bc", 2);
  EXPECT_EQ(sum.digits(), kOfAbc);
}

TEST(Sha256, OfAFile) {
  const testing::ScratchFolder folder;
  EXPECT_EQ(sha256_of_file(folder.write("a", "abc")), kOfAbc);
  EXPECT_THROW(sha256_of_file(folder.file("missing")), Error);
  EXPECT_THROW(sha256_of_file(folder.path()), Error);
}

TEST(SumsFile, TellsWhetherAFolderIsWhole) {
  const testing::ScratchFolder folder;
  EXPECT_EQ(sums_objection(folder.path()), "no SHA256SUMS in it");
  folder.write("SHA256SUMS", sums_text({{"a.bin", kOfAbc}, {"below/b.bin", kOfNothing}}));
  EXPECT_EQ(sums_objection(folder.path()), "'a.bin' is missing");
  folder.write("a.bin", "abc");
  folder.write("below/b.bin", "");
  EXPECT_EQ(sums_objection(folder.path()), "");
  folder.write("a.bin", "");
  EXPECT_EQ(sums_objection(folder.path()),
            std::string("'a.bin' has SHA-256 ") + kOfNothing + ", " + kOfAbc + " expected");
}

TEST(SumsFile, MustSaySomething) {
  const testing::ScratchFolder folder;
  folder.write("SHA256SUMS", "");
  EXPECT_EQ(sums_objection(folder.path()), "SHA256SUMS is empty");
  folder.write("SHA256SUMS", "half a li");
  EXPECT_EQ(sums_objection(folder.path()), "a line of SHA256SUMS is damaged");
}

}  // namespace
}  // namespace lockstep::data
