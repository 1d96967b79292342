#include "lockstep/rendezvous/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

using ::testing::HasSubstr;

std::string wrong(std::string bytes, std::size_t longest = kLongestMessage) {
  try {
    take_message(bytes, longest);
  } catch (const BadFrame& error) {
    return error.what();
  }
  return "nothing wrong";
}

TEST(Messages, WhatIsWrittenIsRead) {
  std::string bytes = to_frame(Join{.version = "1.0",
                                    .run_id = "",
                                    .nnodes = "2:4",
                                    .backend = "c10d",
                                    .host = "h",
                                    .workers = 3,
                                    .wanted_rank = -1,
                                    .keep_alive = 250,
                                    .misses = 7}) +
                      to_frame(Pong{.sent = -5, .wall = 0.25}) +
                      to_frame(Done{.generation = 7, .code = 137, .left_behind = true, .uptime = 12});
  const auto join = std::get<Join>(take_message(bytes, kLongestMessage).value());
  EXPECT_EQ(join.nnodes, "2:4");
  EXPECT_EQ(join.workers, 3);
  EXPECT_EQ(join.wanted_rank, -1);
  EXPECT_EQ(join.keep_alive, 250);
  EXPECT_EQ(join.misses, 7);
  const auto pong = std::get<Pong>(take_message(bytes, kLongestMessage).value());
  EXPECT_EQ(pong.sent, -5);
  EXPECT_EQ(pong.wall, 0.25);
  const auto done = std::get<Done>(take_message(bytes, kLongestMessage).value());
  EXPECT_EQ(done.code, 137);
  EXPECT_TRUE(done.left_behind);
  EXPECT_FALSE(done.never_ran);
  EXPECT_EQ(bytes, "");
  EXPECT_EQ(take_message(bytes, kLongestMessage), std::nullopt);
}

TEST(Messages, ListsOfBytesAreNotCut) {
  const std::string bytes("\0\xff", 2);
  std::string frame = to_frame(StoreAsk{.id = 4, .what = 2, .keys = {bytes, ""}, .values = {std::string(30'000, 'x')}});
  const auto ask = std::get<StoreAsk>(take_message(frame, kLongestMessage).value());
  EXPECT_EQ(ask.id, 4);
  EXPECT_EQ(ask.keys, (std::vector<std::string>{bytes, ""}));
  EXPECT_EQ(ask.values, (std::vector<std::string>{std::string(30'000, 'x')}));
}

TEST(Messages, AReportComesInParts) {
  std::string frame = to_frame(Report{.part = {std::string(48 << 10, 'r')}, .last = true});
  const auto report = std::get<Report>(take_message(frame, kLongestMessage).value());
  EXPECT_EQ(report.part, std::vector<std::string>{std::string(48 << 10, 'r')});
  EXPECT_TRUE(report.last);
}

TEST(Messages, APartIsNotRead) {
  const std::string whole = to_frame(Outcome{.generation = 1, .text = "why"});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    std::string part = whole.substr(0, size);
    EXPECT_EQ(take_message(part, kLongestMessage), std::nullopt) << size;
    EXPECT_EQ(part.size(), size);
  }
}

TEST(Messages, LongTextsAreCut) {
  std::string bytes = to_frame(Waiting{.reason = std::string(100'000, 'x')});
  EXPECT_EQ(std::get<Waiting>(take_message(bytes, kLongestMessage).value()).reason.size(), kLongestText);
}

TEST(Messages, StrangersAreToldApartByTheirFirstBytes) {
  EXPECT_THAT(wrong("GET / HTTP/1.1"), HasSubstr("not the protocol"));
  EXPECT_THAT(wrong("\x16"), HasSubstr("not the protocol"));
  EXPECT_THAT(wrong(std::string("\0\xce\xf7\x85\x3c", 5)), HasSubstr("torchrun's protocol (a TCPStore)"));
  EXPECT_THAT(wrong("LKr\x01"), HasSubstr("another version"));
}

TEST(Messages, DamagedOnes) {
  const std::string frame = to_frame(Done{});
  const auto with = [&](std::size_t at, char byte) {
    std::string damaged = frame;
    damaged[at] = byte;
    return damaged;
  };
  EXPECT_THAT(wrong(with(8, 100)), HasSubstr("unknown type 100"));
  EXPECT_THAT(wrong(with(4, 0)), HasSubstr("of 0 bytes"));
  EXPECT_THAT(wrong(with(7, 1)), HasSubstr("not 1 to 65536"));
  EXPECT_THAT(wrong(with(4, 9)), HasSubstr("ends within a field"));
  EXPECT_THAT(wrong(with(33, 2)), HasSubstr("a truth value is 2"));
  std::string longer = frame + "x";
  longer[4] = char(longer[4] + 1);
  EXPECT_THAT(wrong(longer), HasSubstr("goes on behind"));
  // From a stranger a long message is refused by its header alone.
  EXPECT_THAT(wrong(to_frame(Waiting{.reason = std::string(4'000, 'x')}).substr(0, 8), kLongestFromStranger),
              HasSubstr("not 1 to 2048"));
  std::string text = to_frame(Waiting{.reason = "abc"});
  text[10] = char(0xff);
  EXPECT_THAT(wrong(text), HasSubstr("a text of"));
  std::string list = to_frame(StoreAsk{.keys = {"abc"}, .values = {}});
  list[36] = char(0xff);  // so many keys
  EXPECT_THAT(wrong(list), HasSubstr("ends within a field"));
}

}  // namespace
}  // namespace lockstep::rendezvous
