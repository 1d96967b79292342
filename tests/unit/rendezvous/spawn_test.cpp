#include "lockstep/rendezvous/spawn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::rendezvous {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

// Memory that the processes share with the test.
struct Seen {
  int pids[4];
  int numbers[4];
};

class Spawn : public ::testing::Test {
 protected:
  Spawn()
      : seen_(static_cast<Seen*>(
            mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Spawn() override { munmap(seen_, sizeof(Seen)); }

  // Until another process has written it; at most as long as a test may last.
  static void wait_for(const volatile int& written) {
    while (written == 0) std::this_thread::sleep_for(milliseconds(1));
  }
  void note(int rank) { seen_->pids[rank] = getpid(); }

  // What spawn() throws.
  template <class E = Error>
  std::string failure_of(const std::function<void(int)>& body, int processes = 2, const SpawnOptions& options = {}) {
    try {
      spawn(body, processes, options);
    } catch (const E& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  void expect_nobody_is_left(int processes) {
    for (int rank = 0; rank < processes; ++rank) {
      ASSERT_NE(seen_->pids[rank], 0) << rank;
      EXPECT_EQ(kill(seen_->pids[rank], 0), -1) << rank;
    }
  }

  Seen* seen_;
};

int number_of(const char* variable) { return std::atoi(std::getenv(variable)); }

TEST_F(Spawn, EachProcessIsARank) {
  spawn(
      [this](int rank) {
        note(rank);
        seen_->numbers[rank] = 1000 * number_of("WORLD_SIZE") + 100 * number_of("LOCAL_WORLD_SIZE") +
                               10 * number_of("RANK") + number_of("LOCAL_RANK");
      },
      3);
  EXPECT_THAT(seen_->numbers, ElementsAre(3300, 3311, 3322, 0));
  expect_nobody_is_left(3);
  EXPECT_EQ(std::getenv("RANK"), nullptr) << "this process is as it was";
}

TEST_F(Spawn, TheFirstFailureIsThrownAndNobodyIsLeft) {
  EXPECT_EQ(failure_of([this](int rank) {
              note(rank);
              if (rank == 1) {
                wait_for(seen_->pids[0]);
                throw std::runtime_error("no bread");
              }
              std::this_thread::sleep_for(std::chrono::minutes(1));
            }),
            "spawn: rank 1: no bread");
  expect_nobody_is_left(2);
}

TEST_F(Spawn, WrongUseStaysWrongUse) {
  EXPECT_EQ(failure_of<UsageError>([](int) { throw UsageError("a wrong value"); }, 1), "spawn: rank 0: a wrong value");
}

// Rank 0 is seen to fail first, and only because rank 1 is about to.
TEST_F(Spawn, WhoSawAnotherFailIsNotTheCause) {
  EXPECT_EQ(failure_of([](int rank) {
              if (rank == 0) throw GroupAborted({.rank = 1, .cause = "has left"});
              std::this_thread::sleep_for(milliseconds(50));
              throw std::runtime_error("the cause");
            }),
            "spawn: rank 1: the cause");
  EXPECT_THAT(failure_of([](int) { throw GroupAborted({.rank = 1, .cause = "is gone"}); }, 1),
              ::testing::HasSubstr("is gone"));
}

TEST_F(Spawn, AProcessThatEndsOtherwiseIsNamed) {
  EXPECT_EQ(failure_of([](int rank) {
              if (rank == 0) std::raise(SIGKILL);
              std::this_thread::sleep_for(std::chrono::minutes(1));
            }),
            "spawn: rank 0: killed by SIGKILL");
  EXPECT_EQ(failure_of([](int) { _exit(0); }, 1), "spawn: rank 0: ended with exit code 0 before its function returned");
}

TEST_F(Spawn, WhoDoesNotEndIsKilled) {
  EXPECT_EQ(failure_of(
                [this](int rank) {
                  note(rank);
                  if (rank == 0) {
                    std::signal(SIGTERM, SIG_IGN);
                    seen_->numbers[0] = 1;
                    std::this_thread::sleep_for(std::chrono::minutes(1));
                  }
                  wait_for(seen_->numbers[0]);
                  throw std::runtime_error("done");
                },
                2, {.grace = milliseconds(50)}),
            "spawn: rank 1: done");
  expect_nobody_is_left(2);
}

TEST_F(Spawn, ALongMessageIsCutAndALineBreakIsNone) {
  const std::string found = failure_of([](int) { throw std::runtime_error("a\nb" + std::string(100'000, 'x')); }, 1);
  EXPECT_LT(found.size(), 5'000u);
  EXPECT_EQ(found.find('\n'), std::string::npos);
}

TEST_F(Spawn, RefusesToBeWithinAJobOrNobody) {
  const std::string nobody = failure_of<UsageError>([](int) {}, 0);
  EXPECT_EQ(nobody, "spawn: 0 processes: at least 1 is needed");
  EXPECT_THAT(failure_of<UsageError>([](int) { spawn([](int) {}, 1); }, 1),
              ::testing::HasSubstr("this process is rank 0 of a job already (RANK)"));
}

// A program with a thread starts anew in each process; what stands before the call runs there again, an earlier call's
// function does not.
TEST_F(Spawn, AProgramWithThreadsStartsAnew) {
  const testing::ScratchFolder folder;
  const std::string command = SPAWNING_PROGRAM " argument " + folder.file("there") + " 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> program(popen(command.c_str(), "r"), pclose);
  ASSERT_NE(program, nullptr);
  std::string out(10'000, '\0');
  out.resize(fread(out.data(), 1, out.size(), program.get()));
  const auto count = [&](const std::string& line) {
    int found = 0;
    for (std::size_t at = out.find(line + "\n"); at != std::string::npos; at = out.find(line + "\n", at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("begin with 2 arguments"), 5) << out;
  EXPECT_EQ(count("first 0 of 2"), 1) << out;
  EXPECT_EQ(count("first 1 of 2"), 1) << out;
  EXPECT_EQ(count("second 0 of 2"), 1) << out;
  EXPECT_EQ(count("second 1 of 2"), 1) << out;
  EXPECT_EQ(count("spawn: rank 1: the end"), 1) << out;
}

}  // namespace
}  // namespace lockstep::rendezvous
