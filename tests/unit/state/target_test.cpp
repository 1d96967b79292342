// Which buffer a step writes: chosen by local rank 0, obeyed by all, never one that is committed or pinned.

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/pin.h"
#include "lockstep/comm/shm/shm_group.h"
#include "lockstep/state/pin.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::state {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kNumbers = 20;  // of 8 bytes: all weights of the layout

Layout of_buffers(int buffers) {
  return {{{"w", c10::ScalarType::Float, {2 * kNumbers}, {1}}}, {}, {.state_buffers = buffers}};
}

// A job of one rank, which holds nothing but its number of steps.
struct Counting {
  explicit Counting(int buffers, std::uint64_t first = 0, std::chrono::milliseconds timeout = 20s)
      : group(base::Segment::open(segment.path(), 1), 0, timeout),
        state(group.node(), of_buffers(buffers), [&](SharedState& fresh) {
          write(fresh, 0, first);
          return first;
        }) {}

  static void write(SharedState& state, int buffer, std::uint64_t step) {
    std::fill_n(state.write_as<std::uint64_t>(state.layout().weights(buffer)), kNumbers, step);
  }
  // Returns the buffer that was written.
  int step() {
    const std::uint64_t step = state.committed().step + 1;
    state.choose_target(step);
    write(state, state.target(step), step);
    state.vote(step);
    return state.target(step);
  }

  base::Segment segment = base::Segment::create(1);
  comm::ShmGroup group;
  SharedState state;
};

TEST(Target, TakesTurnsWhereNobodyReads) {
  for (const int buffers : {2, 3, 4}) {
    Counting job(buffers);
    for (int step = 1; step < 10; ++step) {
      EXPECT_EQ(job.step(), step % buffers);
      EXPECT_EQ(job.state.committed(), (base::Commit{std::uint64_t(step), std::uint32_t(step % buffers)}));
    }
  }
}

TEST(Target, IsTheOnlyBufferWhereThereIsOne) {
  Counting job(1, 3);
  for (std::uint64_t step = 4; step < 8; ++step) {
    EXPECT_EQ(job.step(), 0);
    EXPECT_EQ(job.state.committed(), (base::Commit{step, 0}));
  }
}

TEST(Target, ThereAreOneToFourBuffers) {
  EXPECT_THROW(Counting(0), UsageError);
  EXPECT_THROW(Counting(base::kMaxStateBuffers + 1), UsageError);
}

// What modify() does.
TEST(Target, MayBeForTheCommittedStepOnceMore) {
  Counting job(3, 5);
  EXPECT_THROW(job.state.recommit(), Error) << "no buffer was chosen";
  job.state.choose_target(5);
  Counting::write(job.state, job.state.target(5), 50);
  EXPECT_EQ(job.state.committed(), (base::Commit{5, 0}));
  job.state.recommit();
  EXPECT_EQ(job.state.committed(), (base::Commit{5, 1}));
  EXPECT_EQ(job.step(), 2);
  EXPECT_EQ(job.state.committed(), (base::Commit{6, 2}));
}

// A step that is refused before anybody votes is made again, whatever buffer it had.
TEST(Target, MayBeChosenAnew) {
  Counting job(3);
  job.state.choose_target(1);
  EXPECT_EQ(job.state.target(1), 1);
  const base::Mapping pin = base::pin_buffer(job.segment, 0, 1);
  job.state.choose_target(1);
  EXPECT_EQ(job.state.target(1), 2);
  job.state.vote(1);
  EXPECT_EQ(job.state.committed(), (base::Commit{1, 2}));
}

// The next generation writes its number into the words first, then tells the page.
TEST(Target, IsNotChosenForTheNextGeneration) {
  Counting job(2);
  job.state.choose_target(1);
  base::RegionWords& words = job.segment.control().regions[0];
  const base::Mark next = base::Commit{}.pack(2);
  words.target.store(next);
  EXPECT_THROW(job.state.choose_target(1), GroupAborted);
  EXPECT_EQ(words.target.load(), next);
}

// A rank that outlives its attempt may be anywhere in a step, also where it looks at nothing but these words.
TEST(Target, IsNobodysBehindTheFence) {
  Counting job(2);
  job.step();
  job.state.choose_target(2);
  EXPECT_EQ(job.state.target(2), 0);
  base::next_generation(job.segment.control(), 1);
  EXPECT_THROW(job.state.target(2), GroupAborted) << "the committed buffer would be written";
  EXPECT_THROW(job.state.recommit(), GroupAborted);
  const base::RegionWords& words = job.segment.control().regions[0];
  for (const std::uint64_t step : {0, 1, 2}) EXPECT_EQ(base::target_of(words, 2, step), std::nullopt) << step;
}

// One rank recommits where another makes a step: both pass the same barrier.
TEST(Target, OfAnotherStepIsRefused) {
  Counting job(2);
  EXPECT_THROW(job.state.target(1), GroupAborted) << "nothing was chosen";
  job.step();
  EXPECT_THROW(job.state.target(2), Error) << "this is the committed buffer by now";
}

TEST(Target, AFrozenAreaIsSpareWhenNoOtherBufferHasIt) {
  base::Segment segment = base::Segment::create(1);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  const Layout layout({}, {}, {.state_buffers = 3}, {{"table", c10::ScalarType::Float, {9}, {1}}});
  const SharedState state(group.node(), layout, [](SharedState&) { return 0; });
  EXPECT_EQ(spare_frozen_area(state, 1), 1) << "all have area 0";
  state.set_frozen_area(1, 1);
  EXPECT_EQ(spare_frozen_area(state, 2), 2);
  EXPECT_EQ(spare_frozen_area(state, 1), 1);
  state.set_frozen_area(2, 2);
  EXPECT_EQ(spare_frozen_area(state, 0), 0) << "its own";
  EXPECT_EQ(spare_frozen_area(state, 1), 1);
}

TEST(Pin, NeedsAStateAndAThirdBuffer) {
  const base::Segment empty = base::Segment::create(1);
  EXPECT_THROW(Pin{empty}, UsageError);
  EXPECT_THROW(Pin(empty, base::kRegions), UsageError);
  for (const int buffers : {1, 2}) {
    const Counting job(buffers);
    try {
      const Pin pin = job.state.pin();
      ADD_FAILURE() << "pinned one of " << buffers;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("must have 3"), std::string::npos) << error.what();
    }
  }
}

TEST(Pin, HoldsItsBufferWhileTrainingGoesOn) {
  Counting job(3);
  job.step();
  std::optional<Pin> pin = job.state.pin();
  EXPECT_EQ(pin->commit(), (base::Commit{1, 1}));
  const std::string hash = job.state.buffer_hash(1);
  for (int i = 0; i < 10; ++i) EXPECT_NE(job.step(), 1);
  EXPECT_EQ(job.state.buffer_hash(1), hash);
  pin.reset();
  std::set<int> written;
  for (int i = 0; i < 3; ++i) written.insert(job.step());
  EXPECT_TRUE(written.contains(1));
}

// As a checkpoint writer: a process that is no rank, opens the segment to read it, and may be killed.
TEST(Pin, OfAnotherProcessEndsWithIt) {
  Counting job(3);
  job.step();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string path = job.segment.path();
  const pid_t writer = fork();
  if (writer == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const base::Segment segment = base::Segment::open(path, 1);
    const Pin pin(segment);
    const auto buffer = char(pin.commit().buffer);
    [[maybe_unused]] const ssize_t said = write(ends[1], &buffer, 1);
    for (;;) pause();
  }
  char buffer = 0;
  ASSERT_EQ(read(ends[0], &buffer, 1), 1);
  EXPECT_EQ(buffer, 1);
  const std::string hash = job.state.buffer_hash(1);
  for (int i = 0; i < 10; ++i) EXPECT_NE(job.step(), 1);
  EXPECT_EQ(job.state.buffer_hash(1), hash);
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  std::set<int> written;
  for (int i = 0; i < 3; ++i) written.insert(job.step());
  EXPECT_TRUE(written.contains(1));
}

TEST(Pin, OfAllButTheCommittedBufferMakesAStepWait) {
  Counting job(3);
  std::optional<Pin> first = job.state.pin();
  job.step();
  const Pin second = job.state.pin();
  EXPECT_EQ(job.step(), 2);
  std::thread reader([&] {
    std::this_thread::sleep_for(50ms);
    first.reset();
  });
  EXPECT_EQ(job.step(), 0);
  reader.join();
}

TEST(Pin, ThatIsHeldForTooLongEndsTheGroup) {
  Counting job(3, 0, 50ms);
  const Pin first = job.state.pin();
  job.step();
  const Pin second = job.state.pin();
  job.step();
  try {
    job.step();
    ADD_FAILURE() << "a pinned buffer was written";
  } catch (const GroupAborted& aborted) {
    EXPECT_NE(std::string(aborted.what()).find("waited 50 ms for a state buffer that nobody has pinned"),
              std::string::npos)
        << aborted.what();
  }
}

// Pins one state after the other for a while, and looks whether each is whole and stands still: the exit code of a
// process of its own.
int watch(const std::string& path) {
  const base::Segment segment = base::Segment::open(path, 1);
  const Layout layout = of_buffers(3);
  const Clock::time_point end = Clock::now() + 500ms;
  std::set<std::uint64_t> seen;
  while (Clock::now() < end) {
    const Pin pin(segment);
    const auto [step, buffer] = pin.commit();
    const auto* numbers = reinterpret_cast<const volatile std::uint64_t*>(pin.read(layout.weights(int(buffer))));
    for (int look = 0; look < 40; ++look) {
      for (std::size_t i = 0; i < kNumbers; ++i)
        if (numbers[i] != step) return 3;
      if (look % 10 == 0) sched_yield();
    }
    seen.insert(step);
  }
  return seen.size() > 3 ? 0 : 4;
}

TEST(Pin, AndStepAtTheSameTimeNeverMeetInABuffer) {
  Counting job(3);
  const std::string path = job.segment.path();
  std::vector<pid_t> watchers;
  for (int i = 0; i < 3; ++i) {
    watchers.push_back(fork());
    if (watchers.back() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(watch(path));
  }
  const Clock::time_point deadline = Clock::now() + 20s;
  while (!watchers.empty() && Clock::now() < deadline) {
    for (int i = 0; i < 100; ++i) job.step();
    std::erase_if(watchers, [](pid_t watcher) {
      int status = 0;
      if (waitpid(watcher, &status, WNOHANG) != watcher) return false;
      EXPECT_TRUE(WIFEXITED(status)) << status;
      EXPECT_EQ(WEXITSTATUS(status), 0) << "3: a pinned buffer was written, 4: nothing was seen";
      return true;
    });
  }
  EXPECT_TRUE(watchers.empty()) << "they hang";
  for (const pid_t watcher : watchers) {
    kill(watcher, SIGKILL);
    waitpid(watcher, nullptr, 0);
  }
  EXPECT_GT(job.state.committed().step, 100u);
}

}  // namespace
}  // namespace lockstep::state
