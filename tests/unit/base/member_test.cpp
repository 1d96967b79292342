#include "lockstep/base/member.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "lockstep/base/segment.h"

namespace lockstep::base {
namespace {

using namespace std::chrono_literals;

void run_ranks(Segment& segment, int ranks, const std::function<void(Member&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Member member(segment.control(), rank, 120s);  // 512 threads under ThreadSanitizer take their time
      body(member);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Member, BarrierLetsNobodyThroughEarly) {
  for (int ranks : {1, 2, 3, 8}) {
    Segment segment = Segment::create(ranks);
    std::atomic<int> inside{0};
    std::atomic<int> wrong{0};
    run_ranks(segment, ranks, [&](Member& member) {
      for (int round = 1; round <= 50; ++round) {
        inside.fetch_add(1);
        member.barrier();
        if (inside.load() < round * ranks) wrong.fetch_add(1);
        member.barrier();
      }
    });
    EXPECT_EQ(wrong.load(), 0) << ranks << " ranks";
  }
}

TEST(Member, ARankThatLeavesAbortsTheOthers) {
  Segment segment = Segment::create(3);
  std::atomic<int> aborted{0};
  run_ranks(segment, 3, [&](Member& member) {
    member.barrier();
    if (member.rank() == 1) return;
    try {
      member.barrier();
    } catch (const GroupAborted& error) {
      EXPECT_EQ(error.failure().rank, 1);
      aborted.fetch_add(1);
    }
  });
  EXPECT_EQ(aborted.load(), 2);
}

TEST(Member, ARankThatLeavesAfterItsLastBarrierIsNoFailure) {
  for (int round = 0; round < 50; ++round) {
    Segment segment = Segment::create(4);
    run_ranks(segment, 4, [&](Member& member) {
      for (int i = 0; i < 3; ++i) member.barrier();
    });
    EXPECT_FALSE(is_aborted(segment.control(), 1));
  }
}

TEST(Member, TheTimeoutNamesWhoIsLate) {
  Segment segment = Segment::create(2);
  std::atomic<bool> done{false};
  std::thread late([&] {
    Member member(segment.control(), 1, 10s);
    member.set_step(7);
    member.set_phase(Phase::forward);
    while (!done.load()) std::this_thread::sleep_for(1ms);
  });
  Member member(segment.control(), 0, 100ms);
  try {
    member.barrier();
    ADD_FAILURE() << "the barrier ended without rank 1";
  } catch (const GroupAborted& error) {
    EXPECT_STREQ(error.what(), "rank 1, step 7, forward: rank 0 waited 100 ms for rank 1 (step 7, forward)");
    EXPECT_EQ(error.failure().rank, 1);
  }
  done.store(true);
  late.join();
}

TEST(Member, MissingRanksAreNamedAtTheStart) {
  Segment segment = Segment::create(2);
  EXPECT_THROW(Member(segment.control(), 0, 50ms), GroupAborted);
}

TEST(Member, AKilledProcessAbortsThoseWhoWaitForIt) {
  Segment segment = Segment::create(2);
  const pid_t child = fork();
  if (child == 0) {
    Member member(segment.control(), 1, 10s);
    member.barrier();
    pause();
    _exit(0);
  }
  Member member(segment.control(), 0, 10s);
  member.barrier();
  std::thread killer([&] {
    std::this_thread::sleep_for(30ms);
    kill(child, SIGKILL);
  });
  try {
    member.barrier();
    ADD_FAILURE() << "the barrier ended without rank 1";
  } catch (const GroupAborted& error) {
    EXPECT_EQ(error.failure().rank, 1);
    EXPECT_NE(error.failure().cause.find("ended without a word"), std::string::npos);
  }
  killer.join();
  waitpid(child, nullptr, 0);
}

TEST(Member, AnOldGenerationsArrivalsDoNotCount) {
  Segment segment = Segment::create(2);
  run_ranks(segment, 2, [](Member& member) {
    for (int i = 0; i < 5; ++i) member.barrier();
  });
  next_generation(segment.control(), 2);
  std::atomic<int> passed{0};
  run_ranks(segment, 2, [&](Member& member) {
    if (member.rank() == 1) {
      std::this_thread::sleep_for(20ms);
      EXPECT_EQ(passed.load(), 0);
    }
    member.barrier();
    passed.fetch_add(1);
  });
  EXPECT_EQ(passed.load(), 2);
}

TEST(Member, ASeatIsTakenOnce) {
  Segment segment = Segment::create(1);
  Member member(segment.control(), 0);
  EXPECT_THROW(Member(segment.control(), 0), UsageError);
  member.barrier();
  EXPECT_FALSE(is_aborted(segment.control(), 1));
}

TEST(Member, FailWakesSleepersAtOnce) {
  Segment segment = Segment::create(2);
  std::thread failing([&] {
    Member member(segment.control(), 1, 10s);
    std::this_thread::sleep_for(30ms);
    EXPECT_TRUE(member.fail("disk full", 1));
  });
  Member member(segment.control(), 0, 10s);
  try {
    member.barrier();
    ADD_FAILURE();
  } catch (const GroupAborted& error) {
    EXPECT_EQ(error.failure().cause, "disk full");
  }
  failing.join();
}

// One rank of an ended generation, and both of the next one.
struct Stale {
  Segment segment = Segment::create(2);
  std::unique_ptr<Member> old_zero, old_one, zero, one;
  Stale() {
    join(old_zero, old_one);
    next_generation(segment.control(), 2);
    join(zero, one);
  }
  void join(std::unique_ptr<Member>& first, std::unique_ptr<Member>& second) {
    std::thread other([&] { second = std::make_unique<Member>(segment.control(), 1, 10s); });
    first = std::make_unique<Member>(segment.control(), 0, 10s);
    other.join();
  }
};

TEST(MemberFence, AStaleRankDoesNotPassTheNewGenerationsBarrier) {
  Stale t;
  std::thread peer([&] {
    for (int i = 0; i < 3; ++i) t.one->barrier();
  });
  for (int i = 0; i < 3; ++i) t.zero->barrier();
  peer.join();
  EXPECT_THROW(t.old_zero->barrier(), GroupAborted);
  EXPECT_THROW(t.old_zero->check_abort(), GroupAborted);
  // Nor when it has looked for the abort before the generation moved.
  const Mark mark = make_mark(t.old_zero->generation(), 1);
  const auto missing = [&](int peer) { return !has_reached(t.segment.control().ranks[peer].arrived.load(), mark); };
  EXPECT_THROW(t.old_zero->meet(missing), GroupAborted);
  EXPECT_FALSE(is_aborted(t.segment.control(), 2));
}

TEST(MemberFence, AStaleRanksEndAndFailuresAreNobodys) {
  Stale t;
  EXPECT_FALSE(t.old_zero->fail("late"));
  t.old_zero.reset();
  t.old_one.reset();
  EXPECT_FALSE(is_aborted(t.segment.control(), 2));
  EXPECT_EQ(t.segment.control().ranks[0].seat.load(), make_mark(2, Seat::joined));
  std::thread peer([&] { t.one->barrier(); });
  t.zero->barrier();
  peer.join();
}

TEST(MemberFence, AStaleArrivalIsNotWrittenOverANewOne) {
  Stale t;
  RankWords& words = t.segment.control().ranks[0];
  std::thread peer([&] { t.one->barrier(); });
  t.zero->barrier();
  peer.join();
  const Mark arrived = words.arrived.load();
  EXPECT_THROW(t.old_zero->barrier(), GroupAborted);
  EXPECT_FALSE(advance(words.arrived, make_mark(1, 1000)));
  EXPECT_EQ(words.arrived.load(), arrived);
}

// Its segment was opened for the attempt before, and the next one has begun since it was seen to be open.
TEST(MemberFence, ALateRankTakesNoSeatInAGenerationNotItsOwn) {
  Segment segment = Segment::create(1);
  ControlPage& page = segment.control();
  const std::uint32_t old = page.generation.load();
  next_generation(page, 1);
  try {
    const Member late(page, 0, 10s, old);
    ADD_FAILURE() << "took the seat of the next attempt";
  } catch (const GroupAborted&) {
  }
  EXPECT_NE(mark_generation(page.ranks[0].seat.load()), page.generation.load());
  const Member rightful(page, 0, 10s);
  EXPECT_TRUE(has_joined(page.ranks[0], page.generation.load()));
}

TEST(Member, TheTimeoutNamesWhatIsAwaitedWhereNoPeerIs) {
  Segment segment = Segment::create(1);
  Member member(segment.control(), 0, 50ms);
  try {
    member.wait([] { return false; }, [](int) { return false; }, "better weather");
    ADD_FAILURE() << "it has come";
  } catch (const GroupAborted& error) {
    EXPECT_NE(std::string(error.what()).find("waited 50 ms for better weather"), std::string::npos) << error.what();
  }
}

std::string doing_in_words(const void*) { return "a collective"; }

TEST(Member, AWaitThatLastsIsToldOnceByTheLowestThatWaits) {
  Segment segment = Segment::create(3);
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      Member member(segment.control(), rank, 60s);
      member.set_stall_warning(300ms);  // by when rank 2 has come, on a busy machine, too
      member.set_step(7);
      member.set_phase(Phase::gather);
      // The last two come one after the other, and rank 0 when the first of them has spoken.
      struct stat said {};
      const auto waits = [&] {
        if (rank == 2) return segment.control().ranks[1].arrived.load() == 0;
        return rank == 0 && fstat(STDERR_FILENO, &said) == 0 && said.st_size == 0;
      };
      for (int looks = 0; waits() && looks < 20'000; ++looks) std::this_thread::sleep_for(1ms);
      if (rank == 0) std::this_thread::sleep_for(600ms);  // in which nobody else speaks
      member.set_doing({.text = &doing_in_words, .of = nullptr});
      member.barrier();
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "lockstep: rank 1 (step 7, gather) has waited 300 ms for rank 0 (step 7, gather) in a collective; others that "
      "have arrived: 2\n");
}

// The lowest rank has to do with none of it.
TEST(Member, AWaitOfOneRankAloneIsTold) {
  Segment segment = Segment::create(3);
  ::testing::internal::CaptureStderr();
  std::atomic<bool> told{false};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      Member member(segment.control(), rank, 60s);
      member.set_stall_warning(30ms);
      if (rank != 2) {
        for (int looks = 0; !told && looks < 20'000; ++looks) std::this_thread::sleep_for(1ms);
        return;
      }
      member.set_doing({.text = &doing_in_words, .of = nullptr, .alone = true});
      struct stat said {};
      member.wait([&] { return fstat(STDERR_FILENO, &said) == 0 && said.st_size > 0; },
                  [](int peer) { return peer == 1; });
      told = true;
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: rank 2 (step 0, outside a step) has waited 30 ms for rank 1 (step 0, outside a step) in a "
            "collective\n");
}

// The program says at the page of the whole which step it is in.
TEST(Member, OfAPartTellsTheStepThatRanksAreInInTheWhole) {
  Segment segment = Segment::create(2), part = Segment::create(2);
  ::testing::internal::CaptureStderr();
  std::atomic<bool> done{false};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      Member member(segment.control(), rank, 60s);
      member.set_step(7);
      member.set_phase(Phase::forward);
      const std::shared_ptr<ControlPage> page(&segment.control(), [](ControlPage*) {});
      Member in_part(part.control(), rank, 1s, 1, {.page = page, .generation = 1, .ranks = {0, 1}});
      in_part.set_stall_warning(30ms);
      if (rank == 1) {
        while (!done.load()) std::this_thread::sleep_for(1ms);
        return;
      }
      in_part.set_phase(Phase::collective);
      EXPECT_EQ(in_part.step(), 7u);
      try {
        in_part.barrier();
        ADD_FAILURE() << "the barrier ended without rank 1";
      } catch (const GroupAborted& error) {
        EXPECT_EQ(error.failure().rank, 1);
        EXPECT_EQ(error.failure().step, 7u);
        EXPECT_EQ(error.failure().phase, to_string(Phase::forward));
      }
      done.store(true);
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "lockstep: rank 0 (step 7, " +
                                                          std::string(to_string(Phase::collective)) +
                                                          ") has waited 30 ms for rank 1 (step 7, forward)\n");
}

TEST(MemberFence, AChildThatARankForkedIsNotTheRank) {
  Segment segment = Segment::create(1);
  auto member = std::make_unique<Member>(segment.control(), 0, 10s);
  const pid_t child = fork();
  if (child == 0) {
    int wrong = 0;
    try {
      member->barrier();
      wrong |= 1;
    } catch (const UsageError&) {
    }
    if (member->fail("the child's own trouble")) wrong |= 2;
    member.reset();
    _exit(wrong);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(is_aborted(segment.control(), 1));
  EXPECT_EQ(segment.control().ranks[0].seat.load(), make_mark(1, Seat::joined));
  member->barrier();
}

// Two words for each, 512 posts: what a machine of today has cores for.
TEST(Member, AsManyRanksAsAMachineHas) {
  Segment segment = Segment::create(kMaxLocalRanks);
  std::atomic<int> passed{0};
  run_ranks(segment, kMaxLocalRanks, [&](Member& member) {
    member.barrier();
    passed.fetch_add(1);
  });
  EXPECT_EQ(passed.load(), kMaxLocalRanks);
  EXPECT_GE(kMaxLocalRanks, 512);
}

}  // namespace
}  // namespace lockstep::base
