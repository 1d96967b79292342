#include "lockstep/base/stack_on_request.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>

#include "lockstep/base/member.h"
#include "lockstep/base/segment.h"
#include "tests/support/pipe.h"

namespace lockstep::base {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// What standard error has so far, while it is captured in a file.
std::string captured_so_far() {
  std::string text(std::size_t(64) << 10, '\0');
  const ssize_t size = pread(STDERR_FILENO, text.data(), text.size(), 0);
  text.resize(std::size_t(std::max<ssize_t>(size, 0)));
  return text;
}

void wait_for_text(const std::string& text) {
  for (int looks = 0; captured_so_far().find(text) == std::string::npos && looks < 20'000; ++looks)
    std::this_thread::sleep_for(1ms);
}

// From here on it has one caller on the stack, whatever it does.
[[gnu::noinline]] void wait_until_asked(const void*& caller, const std::function<void()>& begun) {
  caller = __builtin_return_address(0);
  begun();
  wait_for_text(") is here");
}

// A function that takes long. Returns where it waits.
[[gnu::noinline]] const void* take_long(const std::function<void()>& begun) {
  const void* here = nullptr;
  wait_until_asked(here, begun);
  return here;
}

// "unit_base+0x1a2b", as a stack names the call behind which `address` is.
std::string frame_of(const void* address) {
  Dl_info info{};
  void* found = nullptr;
  if (dladdr1(address, &info, &found, RTLD_DL_LINKMAP) == 0 || found == nullptr) return "in no file";
  const std::string file = info.dli_fname;
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(address) - 1 - static_cast<link_map*>(found)->l_addr;
  char digits[32];
  std::snprintf(digits, sizeof digits, "+0x%llx", static_cast<unsigned long long>(offset));
  return file.substr(file.rfind('/') + 1) + digits;
}

// A rank in a process of its own, whose expectations are its exit code.
pid_t fork_rank(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  body();
  fflush(nullptr);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

void expect_well_ended(pid_t child) {
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(StackOnRequest, WhoIsMissedWritesWhereItIs) {
  Segment segment = Segment::create(2);
  RankWords& late = segment.control().ranks[1];
  ::testing::internal::CaptureStderr();
  const pid_t child = fork_rank([&] {
    EXPECT_FALSE(writes_stack_when_asked());
    EXPECT_TRUE(write_stack_when_asked(1));
    EXPECT_TRUE(writes_stack_when_asked());
    Member member(segment.control(), 1, 60s);
    member.set_step(7);
    const void* const here = take_long([&] { member.set_phase(Phase::forward); });
    EXPECT_THAT(captured_so_far(), HasSubstr(" " + frame_of(here)));
    member.barrier();
  });
  {
    Member member(segment.control(), 0, 60s);
    member.set_stall_warning(200ms);
    for (int looks = 0; late.phase.load() != std::uint32_t(Phase::forward) && looks < 20'000; ++looks)
      std::this_thread::sleep_for(1ms);
    member.barrier();
    expect_well_ended(child);
  }
  const std::string pid = std::to_string(child);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::StartsWith("lockstep: rank 0 (step 0, outside a step) has waited 200 ms for rank 1 (step 7, "
                                    "forward)\nlockstep: rank 1 (pid " +
                                    pid + ", thread " + pid + ") is here, in the innermost function first:\n  #0 "));
}

volatile std::sig_atomic_t urgent_calls = 0;
void count_urgent(int) { urgent_calls = urgent_calls + 1; }

TEST(StackOnRequest, AHandlerOfTheProgramsStaysAndIsNotCalled) {
  Segment segment = Segment::create(2);
  ::testing::internal::CaptureStderr();
  const pid_t child = fork_rank([&] {
    struct sigaction own {};
    own.sa_handler = count_urgent;
    sigaction(SIGURG, &own, nullptr);
    EXPECT_FALSE(write_stack_when_asked(1));
    EXPECT_FALSE(writes_stack_when_asked());
    struct sigaction now {};
    sigaction(SIGURG, nullptr, &now);
    EXPECT_TRUE(now.sa_handler == count_urgent);
    Member member(segment.control(), 1, 60s);
    wait_for_text(" has waited ");
    member.barrier();
    member.barrier();  // behind all that rank 0 did in the first one
    EXPECT_EQ(int(urgent_calls), 0);
  });
  {
    Member member(segment.control(), 0, 60s);
    member.set_stall_warning(200ms);
    member.barrier();
    member.set_stall_warning(0ms);
    member.barrier();
    expect_well_ended(child);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: rank 0 (step 0, outside a step) has waited 200 ms for rank 1 (step 0, outside a step)\n");
}

TEST(StackOnRequest, AnIgnoredSignalStaysIgnored) {
  const auto before = std::signal(SIGURG, SIG_IGN);
  EXPECT_FALSE(write_stack_when_asked(1));
  EXPECT_FALSE(writes_stack_when_asked());
  EXPECT_TRUE(std::signal(SIGURG, before) == SIG_IGN);
}

// Whichever thread the kernel chooses.
TEST(StackOnRequest, IsThatOfTheThreadThatJoined) {
  ::testing::internal::CaptureStderr();
  std::atomic<bool> begun{false};
  std::string frame;
  std::thread rank([&] {
    EXPECT_TRUE(write_stack_when_asked(3));
    frame = frame_of(take_long([&] { begun = true; }));
  });
  while (!begun) std::this_thread::sleep_for(1ms);
  kill(getpid(), SIGURG);
  rank.join();
  std::signal(SIGURG, SIG_DFL);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, ::testing::StartsWith("lockstep: rank 3 (pid " + std::to_string(getpid()) + ", thread "));
  EXPECT_THAT(said, HasSubstr(" " + frame));
}

// The thread that was to be asked is the parent's.
TEST(StackOnRequest, AForkedChildHasNone) {
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(write_stack_when_asked(0));
  const pid_t child = fork_rank([] {
    kill(getpid(), SIGURG);
    raise(SIGURG);
  });
  expect_well_ended(child);
  std::signal(SIGURG, SIG_DFL);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(StackOnRequest, APipeThatNobodyReadsEndsNobody) {
  const pid_t child = fork_rank([] {
    std::signal(SIGPIPE, SIG_DFL);
    EXPECT_TRUE(write_stack_when_asked(0));
    {
      const lockstep::testing::Pipe pipe;
      EXPECT_EQ(dup2(pipe.writer.get(), STDERR_FILENO), STDERR_FILENO);
    }
    raise(SIGURG);
  });
  expect_well_ended(child);
}

TEST(StackOnRequest, AFileAtItsLimitEndsNobody) {
  const pid_t child = fork_rank([] {
    std::signal(SIGXFSZ, SIG_DFL);
    EXPECT_TRUE(write_stack_when_asked(0));
    const int file = memfd_create("stderr", MFD_CLOEXEC);
    EXPECT_EQ(dup2(file, STDERR_FILENO), STDERR_FILENO);
    rlimit before{};
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit now{.rlim_cur = 0, .rlim_max = before.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &now), 0);
    raise(SIGURG);
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(lseek(file, 0, SEEK_END), 0) << "it was not at its limit";
  });
  expect_well_ended(child);
}

}  // namespace
}  // namespace lockstep::base
