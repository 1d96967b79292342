#include "lockstep/base/published_text.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace lockstep::base {
namespace {

TEST(PublishedText, IsTheLastOneAndOutlivesItsWriter) {
  Segment segment = Segment::create(1);
  EXPECT_EQ(published(segment), "");
  {
    Segment writer = Segment::open(segment.path(), 1);
    publish(writer, "one");
  }
  EXPECT_EQ(published(segment), "one");
  publish(segment, "another");
  EXPECT_EQ(published(segment), "another");
  publish(segment, "");
  EXPECT_EQ(published(segment), "");
}

// Whoever dies while it writes has changed nothing: the other half is what is read.
TEST(PublishedText, IsNotWrittenOver) {
  Segment segment = Segment::create(1);
  publish(segment, "one");
  const std::uint64_t word = segment.control().text.load();
  publish(segment, "two");
  segment.control().text.store(word);
  EXPECT_EQ(published(segment), "one");
}

TEST(PublishedText, GrowsAndLeavesTheStateWhereItIs) {
  Segment segment = Segment::create(1);
  publish(segment, "short");
  const std::size_t state = segment.grow(Area::state, 8);
  std::memcpy(segment.map(state, 8, Access::read_write).data(), "weights", 8);
  const std::string text(std::size_t(3) << 20, 'x');
  publish(segment, text);
  EXPECT_EQ(published(segment), text);
  EXPECT_EQ(segment.extent(Area::state).offset, state);
  EXPECT_EQ(std::string(reinterpret_cast<char*>(segment.map(state, 8, Access::read_only).data())), "weights");
}

}  // namespace
}  // namespace lockstep::base
