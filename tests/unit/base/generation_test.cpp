#include "lockstep/base/generation.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>

#include "lockstep/base/file_size_signal.h"
#include "lockstep/base/last_failure.h"
#include "lockstep/base/node.h"
#include "lockstep/base/published_text.h"

namespace lockstep::base {
namespace {

using namespace std::chrono_literals;

// A process that runs until it is killed, or until it ends by itself.
class Child {
 public:
  explicit Child(const std::function<void()>& body) {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      body();
      [[maybe_unused]] const ssize_t said = write(ends[1], "x", 1);
      for (;;) pause();
    }
    close(ends[1]);
    char ready = 0;
    ready_ = read(ends[0], &ready, 1) == 1;
    close(ends[0]);
  }
  ~Child() { end(); }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  bool is_ready() const { return ready_; }

 private:
  pid_t pid_ = 0;
  bool ready_ = false;
};

constexpr int kFilled[] = {0, 2};  // the regions of two models

// A segment with two states of one float: `value`, committed as step 3 in buffer 1, and its double, as step 5; and what
// stays of one that was forgotten.
Segment with_state(float value) {
  Segment segment = Segment::create(1);
  for (const int region : kFilled) {
    const std::size_t offset = segment.grow(state_area(region), sizeof(float));
    const float mine = value * float(1 + region / 2);
    std::memcpy(segment.map(offset, sizeof mine, Access::read_write).data(), &mine, sizeof mine);
    RegionWords& words = segment.control().regions[region];
    words.generation.store(1);
    words.buffers.store(2);
    words.set.store(5);
    words.shares.store(3);
    words.share.store(region);
    words.copied.store(1);
    words.fingerprint.store(77 + std::uint64_t(region));
    words.commit.store(Commit{3 + std::uint64_t(region), 1}.pack(1));
  }
  RegionWords& forgotten = segment.control().regions[1];
  forgotten.model.store(9);
  forgotten.attempts.store(4);
  segment.control().data_fingerprint.store(78);
  publish(segment, "where the state is");
  return segment;
}

float value_in(const Segment& segment, int region = 0) {
  float value = 0;
  const Mapping mapping = segment.map(segment.extent(state_area(region)).offset, sizeof value, Access::read_only);
  std::memcpy(&value, mapping.data(), sizeof value);
  return value;
}

void expect_state(const Segment& segment, std::uint32_t generation) {
  const ControlPage& page = segment.control();
  EXPECT_EQ(page.generation.load(), generation);
  for (const int region : kFilled) {
    const RegionWords& words = page.regions[region];
    EXPECT_EQ(words.commit.load(), (Commit{3 + std::uint64_t(region), 1}.pack(generation)));
    EXPECT_EQ(words.generation.load(), 1u);
    EXPECT_EQ(words.buffers.load(), 2u);
    EXPECT_EQ(words.set.load(), 5u);
    EXPECT_EQ(words.shares.load(), 3);
    EXPECT_EQ(words.share.load(), region);
    EXPECT_EQ(words.copied.load(), 1);
    EXPECT_EQ(words.fingerprint.load(), 77u + std::uint64_t(region));
  }
  EXPECT_EQ(committed(page.regions[1]), std::nullopt);
  EXPECT_EQ(page.regions[1].model.load(), 9u);
  EXPECT_EQ(page.regions[1].attempts.load(), 4u);
  EXPECT_EQ(value_in(segment, 2), 2 * value_in(segment));
  EXPECT_EQ(page.data_fingerprint.load(), 78u);
  EXPECT_EQ(published(segment), "where the state is");
  EXPECT_FALSE(is_aborted(page, generation));
}

TEST(NextGeneration, KeepsTheMemoryWhenNobodyHoldsIt) {
  Segment segment = with_state(4.5f);
  const int fd = segment.fd();
  {
    Child rank([&] { new Node(Segment::open(segment.path(), 1), 0, 10s); });
    ASSERT_TRUE(rank.is_ready());
    EXPECT_TRUE(segment.is_held());
  }
  EXPECT_FALSE(segment.is_held()) << "a dead process holds the segment";
  segment = next_generation(std::move(segment), 2);
  EXPECT_EQ(segment.fd(), fd);
  EXPECT_EQ(segment.control().local_world, 2);
  expect_state(segment, 2);
  EXPECT_EQ(value_in(segment), 4.5f);
}

std::size_t memory_taken(const Segment& segment) {
  struct stat status {};
  fstat(segment.fd(), &status);
  return std::size_t(status.st_blocks) * 512;
}

// As somebody leaves it who dies between freeing and moving an area, or between taking memory and saying so.
TEST(NextGeneration, GivesBackMemoryThatNobodyHas) {
  Segment segment = with_state(4.5f);
  const std::size_t before = memory_taken(segment);
  segment.grow(Area::staging, Extent::kUnit);
  segment.grow(Area::tensors, Extent::kUnit);
  EXPECT_EQ(memory_taken(segment), before + 2 * Extent::kUnit);
  segment.control().areas[std::size_t(Area::staging)].store(0);  // between two
  segment = next_generation(std::move(segment), 1);
  EXPECT_EQ(memory_taken(segment), before + Extent::kUnit);
  segment.control().areas[std::size_t(Area::tensors)].store(0);  // behind the last
  segment = next_generation(std::move(segment), 1);
  EXPECT_EQ(memory_taken(segment), before);
  expect_state(segment, 3);
  EXPECT_EQ(value_in(segment), 4.5f);
  segment.grow(Area::tensors, Extent::kUnit);
  EXPECT_EQ(memory_taken(segment), before + Extent::kUnit);
}

TEST(NextGeneration, LeavesTheOldMemoryToAProcessThatHoldsIt) {
  Segment segment = with_state(4.5f);
  Segment watched = Segment::open(segment.path(), 1);  // without holding it
  EXPECT_FALSE(segment.is_held());
  // Its mapping is what counts, not its descriptor: a daemon closes those that it does not know.
  Child rank([&] {
    auto* node = new Node(Segment::open(segment.path(), 1), 0, 10s);
    ::close(node->segment.fd());
  });
  ASSERT_TRUE(rank.is_ready());
  segment = next_generation(std::move(segment), 1);
  expect_state(segment, 2);
  EXPECT_EQ(value_in(segment), 4.5f);
  // Whatever the old process still writes, nobody sees.
  const float late = 9;
  std::memcpy(watched.map(watched.extent(Area::state).offset, sizeof late, Access::read_write).data(), &late,
              sizeof late);
  EXPECT_EQ(value_in(segment), 4.5f);
  EXPECT_TRUE(is_aborted(watched.control(), 1));
  EXPECT_FALSE(try_commit(watched.control(), 0, 1, 4));
  rank.end();
  segment = next_generation(std::move(segment), 1);
  expect_state(segment, 3);
  EXPECT_EQ(value_in(segment), 4.5f);
}

// Where the state may grow, it may do so in the copy.
TEST(NextGeneration, ACopyHasTheRoomOfTheFirst) {
  Segment segment = Segment::create(1);
  const std::size_t offset = segment.grow(Area::state, sizeof(float), 3 * Extent::kUnit);
  const float value = 4.5f;
  std::memcpy(segment.map(offset, sizeof value, Access::read_write).data(), &value, sizeof value);
  segment.control().regions[0].fingerprint.store(77);
  publish(segment, "behind it");
  const Child rank([&] { new Node(Segment::open(segment.path(), 1), 0, 10s); });
  ASSERT_TRUE(rank.is_ready());
  const int fd = segment.fd();
  segment = next_generation(std::move(segment), 1);
  ASSERT_NE(segment.fd(), fd);
  segment.extend(Area::state, 3 * Extent::kUnit);
  EXPECT_EQ(value_in(segment), 4.5f);
  EXPECT_EQ(published(segment), "behind it");
}

// In the same memory and in a copy of it.
TEST(NextGeneration, TheLastFailureStaysToBeTold) {
  Segment segment = Segment::create(1);
  EXPECT_FALSE(last_failure(segment.control()));
  raise_abort(segment.control(), 1, {.rank = 3, .step = 7, .phase = "update", .cause = "why", .exit_code = 9});
  EXPECT_FALSE(last_failure(segment.control())) << "it is that of this generation";
  segment = next_generation(std::move(segment), 1);
  ASSERT_TRUE(last_failure(segment.control()));
  EXPECT_EQ(last_failure(segment.control())->to_string(), "rank 3, step 7, update: why");
  {
    Child rank([&] { new Node(Segment::open(segment.path(), 1), 0, 10s); });
    ASSERT_TRUE(rank.is_ready());
    raise_abort(segment.control(), 2, {.rank = 0, .cause = "later"});
    const int fd = segment.fd();
    segment = next_generation(std::move(segment), 1);
    EXPECT_NE(segment.fd(), fd) << "a copy";
  }
  ASSERT_TRUE(last_failure(segment.control()));
  EXPECT_EQ(last_failure(segment.control())->cause, "later");
  EXPECT_EQ(last_failure(segment.control())->exit_code, 1);
  segment = next_generation(std::move(segment), 1);
  EXPECT_FALSE(last_failure(segment.control())) << "the last one ended without any";
}

TEST(NextGeneration, AForkedChildHoldsToo) {
  Segment segment = with_state(1);
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  Child rank([&] {
    new Node(Segment::open(segment.path(), 1), 0, 10s);
    if (fork() != 0) return;
    close(gate[1]);
    char byte = 0;
    [[maybe_unused]] const ssize_t got = read(gate[0], &byte, 1);  // until the test is over
    _exit(0);
  });
  ASSERT_TRUE(rank.is_ready());
  rank.end();
  EXPECT_TRUE(segment.is_held()) << "the child can write where its parent could";
  close(gate[0]);
  close(gate[1]);
}

TEST(NextGeneration, WithoutAStateThereIsNothingToCopy) {
  Segment segment = Segment::create(1);
  segment.grow(Area::state, 1);  // never filled
  Child rank([&] { new Node(Segment::open(segment.path(), 1), 0, 10s); });
  ASSERT_TRUE(rank.is_ready());
  segment.control().regions[0].commit.store(Commit{7, 0}.pack(1));
  segment = next_generation(std::move(segment), 3);
  EXPECT_EQ(committed(segment.control().regions[0]), std::nullopt);
  EXPECT_EQ(segment.extent(Area::state).bytes, 0u);
  EXPECT_EQ(segment.control().local_world, 3);
}

TEST(NextGeneration, WhoWasInvitedToTheLastOneFindsNoSeat) {
  Segment segment = Segment::create(1);
  const std::string late = segment.invitation();
  segment = next_generation(std::move(segment), 1);
  Segment last = Segment::open(late, 1);
  EXPECT_THROW(last.hold(), Error) << "sees words that are no longer its own";
  EXPECT_THROW(Node(Segment::open(late, 1), 0, 10s), Error);
  const Node node(Segment::open(segment.invitation(), 1), 0, 10s);
  EXPECT_EQ(node.member.generation(), 2u);
}

// What was committed is to be saved then.
TEST(NextGeneration, WhereMemoryIsShortTheStateStaysWhereItIs) {
  Segment segment = with_state(7);
  const Child rank([&] { new Node(Segment::open(segment.path(), 1), 0, 10s); });
  ASSERT_TRUE(rank.is_ready());
  const WithoutFileSizeSignal here;
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{.rlim_cur = 4096, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(next_generation(std::move(segment), 1), Error);
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_EQ(value_in(segment), 7);
  EXPECT_EQ(published(segment), "where the state is");
}

}  // namespace
}  // namespace lockstep::base
