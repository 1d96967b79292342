#include "lockstep/trace/flight_recorder.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace lockstep::trace {
namespace {

std::vector<std::uint64_t> numbers_of(const FlightRecorder& recorder) {
  std::vector<std::uint64_t> numbers;
  for (const KeptCall& kept : recorder.calls()) numbers.push_back(kept.call.number);
  return numbers;
}

TEST(FlightRecorder, KeepsTheLastCallsInTheirOrder) {
  FlightRecorder recorder(3);
  EXPECT_TRUE(recorder.calls().empty());
  for (std::uint64_t number = 1; number <= 5; ++number) recorder.end(recorder.begin({.number = number}));
  EXPECT_EQ(numbers_of(recorder), (std::vector<std::uint64_t>{3, 4, 5}));
  EXPECT_EQ(recorder.begun(), 5u);
}

TEST(FlightRecorder, ACallHasWhatWasSaidOfItAndItsTimes) {
  FlightRecorder recorder(10);
  const std::int64_t before = steady_now();
  const std::uint64_t ticket = recorder.begin({.kind = "all_reduce",
                                               .dtype = "Float",
                                               .detail_name = "op",
                                               .detail_text = "sum",
                                               .label = "bucket",
                                               .phase = "forward",
                                               .label_number = 3,
                                               .elements = 6,
                                               .step = 12,
                                               .number = 7,
                                               .group = 2,
                                               .dimensions = 2,
                                               .sizes = {2, 3}});
  KeptCall kept = recorder.calls().at(0);
  EXPECT_EQ(kept.end, 0) << "it is under way";
  EXPECT_EQ(std::string(kept.call.kind) + kept.call.dtype + kept.call.detail_name + kept.call.detail_text,
            "all_reduceFloatopsum");
  EXPECT_EQ(std::string(kept.call.label) + kept.call.phase, "bucketforward");
  EXPECT_EQ(kept.call.label_number, 3);
  EXPECT_EQ(kept.call.sizes[1], 3);
  EXPECT_EQ(kept.call.step, 12u);
  recorder.end(ticket);
  kept = recorder.calls().at(0);
  EXPECT_LE(before, kept.begin);
  EXPECT_LE(kept.begin, kept.end);
  EXPECT_LE(kept.end, steady_now());
}

TEST(FlightRecorder, WhatWasRefusedIsNotKept) {
  FlightRecorder recorder(10);
  recorder.begin({.number = 1});
  recorder.forget(recorder.begin({.number = 2}));
  recorder.begin({.number = 2});
  EXPECT_EQ(numbers_of(recorder), (std::vector<std::uint64_t>{1, 2}));
}

TEST(FlightRecorder, AnEndThatComesBehindAWholeRingChangesNothing) {
  FlightRecorder recorder(2);
  const std::uint64_t slow = recorder.begin({.number = 1});
  recorder.begin({.number = 2});
  recorder.begin({.number = 3});
  recorder.end(slow);
  recorder.forget(slow);
  const std::vector<KeptCall> calls = recorder.calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[1].call.number, 3u);
  EXPECT_EQ(calls[1].end, 0) << "that of another call";
}

// Each writes calls whose fields are all one number: a reader never sees two of them mixed.
TEST(FlightRecorder, ReadersSeeWholeCallsWhileThreadsWrite) {
  FlightRecorder recorder(8);
  std::atomic<bool> stop{false};
  const auto write = [&](std::int64_t first) {
    for (std::int64_t n = first; !stop; n += 3) {
      Call call{.label_number = n, .detail = n, .elements = n, .step = std::uint64_t(n), .number = std::uint64_t(n)};
      call.sizes.fill(n);
      recorder.end(recorder.begin(call));
    }
  };
  std::thread a(write, 1), b(write, 2);
  std::size_t seen = 0;
  for (int i = 0; i < 20'000; ++i)
    for (const KeptCall& kept : recorder.calls()) {
      const std::int64_t n = kept.call.detail;
      const Call& call = kept.call;
      ASSERT_TRUE(call.label_number == n && call.elements == n && call.step == std::uint64_t(n) &&
                  call.number == std::uint64_t(n) && call.sizes.front() == n && call.sizes.back() == n);
      ASSERT_TRUE(kept.end == 0 || kept.end >= kept.begin);
      ++seen;
    }
  stop = true;
  a.join();
  b.join();
  EXPECT_GT(seen, 0u);
  EXPECT_EQ(recorder.calls().size(), 8u);
}

}  // namespace
}  // namespace lockstep::trace
