#include "lockstep/data/fetch/download.h"

#include <gtest/gtest.h>

#include "tests/support/scratch_folder.h"

namespace lockstep::data {
namespace {

TEST(RangeStart, IsReadFromTheHeader) {
  EXPECT_EQ(range_start("bytes 100-199/200"), 100);
  EXPECT_EQ(range_start("bytes 0-0/*"), 0);
  EXPECT_EQ(range_start("bytes 5000000000-5000000001/5000000002"), 5'000'000'000);
}

TEST(RangeStart, IsNotGuessed) {
  for (const char* text :
       {"", "bytes", "bytes ", "bytes */200", "bytes 12", "bytes -12", "items 1-2/3", "bytes x-2/3"}) {
    EXPECT_EQ(range_start(text), -1) << text;
  }
}

TEST(Download, OnlySpeaksHttp) {
  const testing::ScratchFolder folder;
  PartFile part(folder.file("a"), std::chrono::seconds(1));
  const Outcome outcome = download("file://" + folder.write("b", "12345"), part, 5, {}, [](std::uint64_t) {});
  EXPECT_EQ(outcome.kind, Outcome::broken);
  EXPECT_EQ(part.size(), 0u);
}

TEST(Download, AsksNobodyForAPartThatIsWhole) {
  const testing::ScratchFolder folder;
  folder.write("a.part", "12345");
  PartFile part(folder.file("a"), std::chrono::seconds(1));
  EXPECT_EQ(download("https://nowhere.invalid/a", part, 5, {}, [](std::uint64_t) {}).kind, Outcome::whole);
}

}  // namespace
}  // namespace lockstep::data
