#include "lockstep/trace/black_box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "lockstep/base/room.h"
#include "lockstep/trace/trace_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/wait_until.h"

namespace lockstep::trace {
namespace {

using ::testing::HasSubstr;

base::Node alone() { return {base::Segment::create(1, base::Holders::this_process), 0}; }

BoxSettings settings_of(const std::string& folder) {
  return {.folder = folder, .capacity = 4, .run = "a run", .attempt = 1, .rank = 2, .world = 3, .first_rank = 2};
}

TEST(BlackBox, IsWrittenByItselfWhenTheGroupFails) {
  const testing::ScratchFolder folder;
  base::Node node = alone();
  BlackBox box(settings_of(folder.file("traces")), node);
  const std::uint32_t group = box.add_group("world", {0, 1, 2});
  box.recorder().begin({.kind = "all_reduce",
                        .dtype = "Float",
                        .detail_name = "op",
                        .detail_text = "sum",
                        .label = "bucket",
                        .phase = box.phase(),
                        .label_number = 3,
                        .elements = 6,
                        .number = 1,
                        .group = group,
                        .dimensions = 2,
                        .sizes = {2, 3}});
  node.member.set_step(12);
  node.member.set_phase(base::Phase::forward);
  box.write_if_over();
  EXPECT_FALSE(std::filesystem::exists(folder.file("traces"))) << "the group is well";
  node.member.fail("the learning rate is nan");
  const std::string file = folder.file("traces/trace_attempt_1_rank_2.json");
  testing::wait_until([&] { return std::filesystem::exists(file); });
  const RankTrace trace = read_traces({file}).at(0);
  EXPECT_EQ(trace.failure->to_string(), "rank 2, step 12, forward: the learning rate is nan") << "as the world counts";
  EXPECT_EQ(trace.step, 12u);
  EXPECT_EQ(trace.phase, "forward");
  ASSERT_EQ(trace.calls.size(), 1u);
  EXPECT_EQ(trace.calls[0].detail, "op sum");
  EXPECT_EQ(trace.calls[0].label, "bucket 3");
  EXPECT_EQ(trace.calls[0].sizes, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(trace.calls[0].end, 0);
  EXPECT_LE(trace.calls[0].begin, trace.time);
  EXPECT_GT(trace.calls[0].begin, trace.time - 60'000'000) << "by the wall clock";
}

TEST(BlackBox, IsWrittenOnce) {
  const testing::ScratchFolder folder;
  base::Node node = alone();
  BlackBox box(settings_of(folder.path()), node);
  node.member.fail("no more data");
  box.write_if_over();  // returns when it is there, whoever writes
  const std::string file = folder.file("trace_attempt_1_rank_2.json");
  ASSERT_TRUE(std::filesystem::exists(file));
  std::filesystem::remove(file);
  box.write_if_over();
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(BlackBox, AForkedChildHasNone) {
  const testing::ScratchFolder folder;
  base::Node node = alone();
  auto box = std::make_unique<BlackBox>(settings_of(folder.path()), node);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // it would wait for a thread that it has not
    box.reset();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(folder.entries(), 0u);
}

// As the launcher ends a rank that has not noticed yet that another is dead.
TEST(BlackBox, ASignalThatEndsTheProcessComesBehindTheFile) {
  const testing::ScratchFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    base::Node node = alone();
    BlackBox box(settings_of(folder.path()), node);
    box.recorder().begin(
        {.kind = "barrier", .phase = "forward", .number = 1, .group = box.add_group("world", {0, 1, 2})});
    raise(SIGTERM);
    for (;;) pause();
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  const RankTrace trace = read_traces({folder.path()}).at(0);
  EXPECT_FALSE(trace.failure) << "the group is well";
  EXPECT_EQ(trace.calls.size(), 1u);
}

// Each newcomer would leave as many files of no failure as the job has ranks.
TEST(BlackBox, WhoMakesRoomForANodeLeavesNone) {
  const testing::ScratchFolder folder;
  base::Node node = alone();
  {
    BlackBox box(settings_of(folder.path()), node);
    base::make_room(node.member.page(), node.member.generation());
    EXPECT_TRUE(box.is_over());
    box.write_if_over();
  }
  EXPECT_EQ(folder.entries(), 0u);
}

// As the launcher ends one that hangs instead.
TEST(BlackBox, WhoDoesNotLeaveTheRoomLeavesOneAtASignal) {
  const testing::ScratchFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    base::Node node = alone();
    BlackBox box(settings_of(folder.path()), node);
    base::make_room(node.member.page(), node.member.generation());
    usleep(100'000);  // for its thread to see that, which it may or may not
    raise(SIGTERM);
    for (;;) pause();
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(BlackBox, ASignalOfTheProgramsOwnStaysItsOwn) {
  const testing::ScratchFolder folder;
  base::Node node = alone();
  static std::atomic<int> heard{0};
  std::signal(SIGTERM, [](int) { ++heard; });
  {
    const BlackBox box(settings_of(folder.path()), node);
    raise(SIGTERM);
  }
  EXPECT_EQ(heard, 1);
  std::signal(SIGTERM, SIG_DFL);
  { const BlackBox box(settings_of(folder.path()), node); }
  EXPECT_EQ(std::signal(SIGTERM, SIG_DFL), SIG_DFL) << "as it was before";
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(BlackBox, WhatCannotBeWrittenIsToldInALine) {
  base::Node node = alone();
  BlackBox box(settings_of("/proc/none"), node);
  ::testing::internal::CaptureStderr();
  node.member.fail("no more data");
  box.write_if_over();
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("lockstep: rank 2 leaves no trace: "));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1);
}

}  // namespace
}  // namespace lockstep::trace
