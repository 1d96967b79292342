#include "lockstep/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::base {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string rising(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text.push_back(char(i));
  return text;
}

// RFC 3720, appendix B.4, and the check value of the CRC catalogue.
TEST(Crc32c, KnownVectors) {
  for (const auto crc : {crc32c, crc32c_by_table}) {
    EXPECT_EQ(crc({}, 0), 0u);
    EXPECT_EQ(crc(bytes_of("123456789"), 0), 0xe3069283u);
    EXPECT_EQ(crc(bytes_of(std::string(32, '\0')), 0), 0x8a9136aau);
    EXPECT_EQ(crc(bytes_of(std::string(32, '\xff')), 0), 0x62a8ab43u);
    EXPECT_EQ(crc(bytes_of(rising(32)), 0), 0x46dd794eu);
  }
}

TEST(Crc32c, GoesOnFromWhatCameBeforeWhereverItIsCut) {
  const std::string text = rising(100);
  const auto bytes = bytes_of(text);
  for (const auto crc : {crc32c, crc32c_by_table})
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut)
      EXPECT_EQ(crc(bytes.subspan(cut), crc(bytes.first(cut), 0)), crc32c_by_table(bytes));
}

// Lengths on both sides of those that the instruction's lanes take.
TEST(Crc32c, OfManyBytesIsThatOfTheTable) {
  const std::string text = rising(10'000);
  for (const std::size_t size : {1'023, 3'071, 3'072, 3'073, 6'143, 6'144, 9'999, 10'000})
    for (const std::size_t from : {0, 1, 7})
      for (const std::uint32_t before : {0u, 0xe3069283u}) {
        const auto bytes = bytes_of(text).first(size).subspan(from);
        EXPECT_EQ(crc32c(bytes, before), crc32c_by_table(bytes, before)) << size << " from " << from;
      }
}

}  // namespace
}  // namespace lockstep::base
