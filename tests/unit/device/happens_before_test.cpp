#include "tests/support/device/happens_before.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::testing {
namespace {

using sim::Kind;
using sim::Range;
using sim::StreamName;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr StreamName kMain = {0, 0};
constexpr StreamName kSide = {0, 1};
constexpr StreamName kThird = {0, 2};
constexpr StreamName kElsewhere = {1, 0};
constexpr Range kBlock = {4096, 8192};
constexpr Range kOther = {8192, 12288};
constexpr Range kPinned = {65536, 69632};

// What a host asks for, a word each.
class History {
 public:
  History& reads(StreamName stream, Range range, const std::string& name = "read") {
    return add({.kind = Kind::operation, .stream = stream, .name = name, .reads = {range}});
  }
  History& writes(StreamName stream, Range range, const std::string& name = "write") {
    return add({.kind = Kind::operation, .stream = stream, .name = name, .writes = {range}});
  }
  History& copies(StreamName stream, Range from, Range to, bool blocking = false) {
    return add({.stream = stream, .name = "copy", .reads = {from}, .writes = {to}, .blocking = blocking});
  }
  History& allocates(StreamName stream, Range block) { return of_block(Kind::allocate, "allocate", stream, block); }
  History& releases(StreamName stream, Range block) { return of_block(Kind::release, "release", stream, block); }
  History& keeps_for(StreamName stream, Range block) { return of_block(Kind::record_stream, "record", stream, block); }
  History& records(std::uint64_t event, StreamName stream) { return of_event(Kind::record_event, event, stream); }
  History& waits(StreamName stream, std::uint64_t event) { return of_event(Kind::wait_event, event, stream); }
  History& sees(std::uint64_t event) { return of_event(Kind::event_seen, event, {}); }
  History& synchronizes_event(std::uint64_t event) { return of_event(Kind::synchronize_event, event, {}); }
  History& synchronizes(StreamName stream) {
    return add({.kind = Kind::synchronize_stream, .stream = stream, .name = "synchronize stream"});
  }
  History& synchronizes_device(int device) {
    return add({.kind = Kind::synchronize_device, .stream = {device, 0}, .name = "synchronize device"});
  }
  History& host_reads(Range range) { return add({.kind = Kind::host_access, .reads = {range}}); }
  History& host_writes(Range range) { return add({.kind = Kind::host_access, .writes = {range}}); }
  History& host_forgets(Range range) { return add({.kind = Kind::host_forget, .writes = {range}}); }

  sim::Report report() const { return sim::check(entries_); }
  std::vector<std::string> faults() const { return report().faults; }

 private:
  History& of_block(Kind kind, const char* name, StreamName stream, Range block) {
    return add({.kind = kind, .stream = stream, .name = name, .writes = {block}});
  }
  History& of_event(Kind kind, std::uint64_t event, StreamName stream) {
    return add({.kind = kind, .stream = stream, .name = "synchronize event", .event = event});
  }
  History& add(sim::Entry entry) {
    entries_.push_back(std::move(entry));
    return *this;
  }

  std::vector<sim::Entry> entries_;
};

TEST(HappensBefore, AStreamIsInOrderWithItself) {
  EXPECT_THAT(History().writes(kMain, kBlock).reads(kMain, kBlock).writes(kMain, kBlock).faults(), IsEmpty());
}

TEST(HappensBefore, AnEventOrdersTwoStreams) {
  EXPECT_THAT(History().writes(kMain, kBlock).records(1, kMain).waits(kSide, 1).reads(kSide, kBlock).faults(),
              IsEmpty());
}

TEST(HappensBefore, EventsOrderOverAStreamBetween) {
  EXPECT_THAT(History()
                  .writes(kMain, kBlock)
                  .records(1, kMain)
                  .waits(kSide, 1)
                  .records(2, kSide)
                  .waits(kElsewhere, 2)
                  .writes(kElsewhere, kBlock)
                  .faults(),
              IsEmpty());
}

TEST(HappensBefore, TheHostOrdersWhatItAsksForAfterAWait) {
  EXPECT_THAT(History().writes(kMain, kBlock).synchronizes(kMain).reads(kSide, kBlock).faults(), IsEmpty());
  EXPECT_THAT(History().writes(kSide, kBlock).synchronizes_device(0).reads(kMain, kBlock).faults(), IsEmpty());
  EXPECT_THAT(History().writes(kMain, kBlock).records(1, kMain).sees(1).reads(kSide, kBlock).faults(), IsEmpty());
}

TEST(HappensBefore, TwoStreamsReadTheSameAndWriteApart) {
  EXPECT_THAT(History()
                  .reads(kMain, kBlock)
                  .reads(kSide, kBlock)
                  .writes(kMain, kOther)
                  .writes(kSide, {kOther.end, kOther.end + 8})
                  .faults(),
              IsEmpty());
}

TEST(HappensBefore, ABlockMayBeReusedBehindAnEventOrRecordStream) {
  const auto used_on_side = [] {
    return History()
        .allocates(kMain, kBlock)
        .writes(kMain, kBlock)
        .records(1, kMain)
        .waits(kSide, 1)
        .reads(kSide, kBlock);
  };
  EXPECT_THAT(used_on_side().keeps_for(kSide, kBlock).releases(kMain, kBlock).allocates(kMain, kBlock).faults(),
              IsEmpty());
  EXPECT_THAT(
      used_on_side().records(2, kSide).waits(kMain, 2).releases(kMain, kBlock).allocates(kMain, kBlock).faults(),
      IsEmpty());
  EXPECT_THAT(
      used_on_side().records(2, kSide).releases(kMain, kBlock).waits(kMain, 2).allocates(kMain, kBlock).faults(),
      IsEmpty())
      << "released first, but nothing was allocated before the wait";
}

TEST(HappensBefore, TheHostReadsACopyBehindItsEventAndWritesMemoryThatIsCopied) {
  EXPECT_THAT(
      History().copies(kMain, kBlock, kPinned).records(1, kMain).synchronizes_event(1).host_reads(kPinned).faults(),
      IsEmpty());
  EXPECT_THAT(History().copies(kMain, kBlock, kPinned, true).host_reads(kPinned).faults(), IsEmpty());
  EXPECT_THAT(History().host_writes(kPinned).copies(kMain, kPinned, kBlock).host_reads(kPinned).faults(), IsEmpty());
  EXPECT_THAT(History().copies(kMain, kPinned, kBlock).host_forgets(kPinned).host_writes(kPinned).faults(), IsEmpty())
      << "given back: its allocator waits for the copy";
}

// From here on: seeded faults.

TEST(HappensBefore, AnEventLeftOutIsTold) {
  EXPECT_THAT(
      History().writes(kMain, kBlock, "mul").reads(kSide, kBlock, "add").faults(),
      ElementsAre("add (1) on stream 1 of sim:0 reads memory that mul (0) on stream 0 of sim:0 writes: nothing makes "
                  "it wait for that"));
  EXPECT_THAT(History().reads(kMain, kBlock).writes(kSide, kBlock).faults(),
              ElementsAre(HasSubstr("writes memory that read")));
  EXPECT_THAT(History().writes(kMain, kBlock).writes(kSide, kBlock).faults(),
              ElementsAre(HasSubstr("writes memory that write")));
}

TEST(HappensBefore, AnEventRecordedTooEarlyIsTold) {
  EXPECT_THAT(History().records(1, kMain).writes(kMain, kBlock).waits(kSide, 1).reads(kSide, kBlock).faults(),
              ElementsAre(HasSubstr("read (3)")));
  EXPECT_THAT(History().writes(kMain, kBlock).waits(kSide, 1).records(1, kMain).reads(kSide, kBlock).faults(),
              ElementsAre(HasSubstr("read (3)")))
      << "a wait is for what was recorded before it";
}

TEST(HappensBefore, AWaitOnTheWrongStreamIsTold) {
  EXPECT_THAT(History().writes(kMain, kBlock).records(1, kMain).waits(kThird, 1).reads(kSide, kBlock).faults(),
              ElementsAre(HasSubstr("read (3) on stream 1")));
  EXPECT_THAT(History().writes(kMain, kBlock).synchronizes(kThird).reads(kSide, kBlock).faults(),
              ElementsAre(HasSubstr("read")));
}

TEST(HappensBefore, ABlockReusedTooEarlyIsTold) {
  const auto used_on_side = [] {
    return History().allocates(kMain, kBlock).records(1, kMain).waits(kSide, 1).reads(kSide, kBlock);
  };
  EXPECT_THAT(
      used_on_side().releases(kMain, kBlock).allocates(kMain, kBlock).faults(),
      ElementsAre(
          "read (3) on stream 1 of sim:0 uses memory of stream 0 of sim:0, which may have it again at allocate "
          "(5) on stream 0 of sim:0: it was released without record_stream and without an event behind the use"));
  EXPECT_THAT(used_on_side().releases(kMain, kBlock).allocates(kMain, kOther).faults(),
              ElementsAre(HasSubstr("read (3)")))
      << "not this time, but it may";
  EXPECT_THAT(used_on_side().releases(kMain, kBlock).faults(), ElementsAre(HasSubstr("may have it again:")))
      << "the next step allocates";
  EXPECT_THAT(used_on_side().keeps_for(kThird, kBlock).releases(kMain, kBlock).faults(),
              ElementsAre(HasSubstr("read (3)")))
      << "kept for another stream";
}

TEST(HappensBefore, MemoryUsedOnAnotherStreamThanItWasAllocatedForIsTold) {
  EXPECT_THAT(History().allocates(kMain, kBlock).writes(kSide, kBlock).faults(),
              ElementsAre(HasSubstr("has only just given out")));
}

TEST(HappensBefore, ACopyTooEarlyIsTold) {
  EXPECT_THAT(
      History().copies(kMain, kPinned, kBlock).host_writes(kPinned).faults(),
      ElementsAre(
          "the host (1) writes memory that copy (0) on stream 0 of sim:0 reads: nothing makes it wait for that"));
  EXPECT_THAT(History().copies(kMain, kBlock, kPinned).host_reads(kPinned).faults(),
              ElementsAre(HasSubstr("the host (1) reads")));
}

TEST(HappensBefore, TwoDevicesUseTheSameBytes) {
  EXPECT_THAT(History().writes(kMain, kBlock).reads(kElsewhere, kBlock).faults(),
              ElementsAre(HasSubstr("of sim:1 reads")));
}

TEST(HappensBefore, APartOfTheBytesIsEnough) {
  EXPECT_THAT(History().writes(kMain, {4096, 5000}).writes(kSide, {4999, 6000}).faults(),
              ElementsAre(HasSubstr("write (1)")));
  EXPECT_THAT(History().writes(kMain, {4096, 5000}).writes(kSide, {5000, 6000}).writes(kThird, {4000, 7000}).faults(),
              ElementsAre(HasSubstr("that write (0)"), HasSubstr("that write (1)")));
}

TEST(HappensBefore, TwoOperationsAreToldOfOnce) {
  EXPECT_THAT(
      History().writes(kMain, {0, 8}).writes(kMain, {16, 24}).reads(kSide, {0, 32}).reads(kSide, {0, 32}).faults(),
      ::testing::SizeIs(4));
}

TEST(HappensBefore, CountsWhereTheHostStandsStill) {
  const sim::Report report = History()
                                 .copies(kMain, kPinned, kBlock)
                                 .copies(kMain, kBlock, kPinned, true)
                                 .synchronizes(kMain)
                                 .synchronizes(kSide)
                                 .records(1, kMain)
                                 .sees(1)
                                 .synchronizes_event(1)
                                 .synchronizes_device(0)
                                 .report();
  EXPECT_THAT(report.host_waits, ElementsAre(Pair("copy", 1), Pair("synchronize device", 1),
                                             Pair("synchronize event", 1), Pair("synchronize stream", 2)));
  EXPECT_EQ(report.all_host_waits(), 5);
  EXPECT_EQ(report.text(), "");
}

}  // namespace
}  // namespace lockstep::testing
