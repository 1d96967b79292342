#include "lockstep/launch/doctor/way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

using testing::HasSubstr;

const std::string kToken(kTokenSize, 't');

Deadline in_seconds(int seconds) { return std::chrono::steady_clock::now() + std::chrono::seconds(seconds); }

TEST(Way, IsMeasured) {
  const WayListener listener = listen_for_way("127.0.0.1");
  EXPECT_EQ(listener.address, "127.0.0.1");
  bool served = false;
  std::thread there([&] { served = serve_way(listener, kToken, -1, in_seconds(30)); });
  const WayFacts way = measure_way("127.0.0.1", listener.port, kToken, in_seconds(30));
  there.join();
  EXPECT_TRUE(served);
  EXPECT_EQ(way.error, "");
  EXPECT_EQ(way.address, "127.0.0.1");
  EXPECT_GT(way.round_trip.count(), 0);
  EXPECT_GT(way.bytes_per_second, 0);
}

TEST(Way, AStrangerIsDroppedAndThePeerServed) {
  const WayListener listener = listen_for_way("127.0.0.1");
  bool served = false;
  std::thread there([&] { served = serve_way(listener, kToken, -1, in_seconds(30)); });
  EXPECT_THAT(measure_way("127.0.0.1", listener.port, std::string(kTokenSize, 'x'), in_seconds(30)).error,
              HasSubstr("the connection broke"));
  EXPECT_EQ(measure_way("127.0.0.1", listener.port, kToken, in_seconds(30)).error, "");
  there.join();
  EXPECT_TRUE(served);
}

TEST(Way, WhatCannotBeReachedIsNamed) {
  int port = 0;
  { port = listen_for_way("127.0.0.1").port; }
  EXPECT_THAT(measure_way("127.0.0.1", port, kToken, in_seconds(30)).error, HasSubstr("Connection refused"));
  EXPECT_THAT(measure_way("no-such-host.invalid", port, kToken, in_seconds(30)).error, HasSubstr("does not resolve"));
  EXPECT_THROW(listen_for_way("198.51.100.77"), Error);  // for documentation: nobody's
}

TEST(Way, AWordEndsTheWait) {
  const WayListener listener = listen_for_way("127.0.0.1");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_FALSE(serve_way(listener, kToken, ends[0], in_seconds(600)));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace lockstep::launch
