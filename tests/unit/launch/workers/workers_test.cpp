#include "lockstep/launch/workers/workers.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "lockstep/base/cores.h"
#include "lockstep/launch/workers/orphans.h"
#include "lockstep/launch/workers/process_state.h"
#include "tests/support/wait_until.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using testing::wait_until;

// What an agent does to its process, taken back for the tests that follow.
class AsAgent {
 public:
  AsAgent() {
    sigprocmask(SIG_BLOCK, nullptr, &mask_);
    sigaction(SIGPIPE, nullptr, &pipe_);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~AsAgent() {
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    sigaction(SIGPIPE, &pipe_, nullptr);
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }
  AsAgent(const AsAgent&) = delete;
  AsAgent& operator=(const AsAgent&) = delete;

 private:
  sigset_t mask_{};
  struct sigaction pipe_ {};
};

class WorkersTest : public ::testing::Test {
 protected:
  WorkersTest() { getrlimit(RLIMIT_NOFILE, &context_.descriptors); }

  int start(int rank, const std::string& program, const std::string& script) {
    return workers_.start(rank, program, {program, "-c", script}, {"PATH=/usr/bin:/bin"}, context_).error;
  }
  void run_until_ended(std::size_t count) {
    ASSERT_TRUE(loop_.run_until([&] { return ends_.size() == count; }, EventLoop::Clock::now() + milliseconds(30'000)));
  }
  void wait_until_gone() {
    wait_until([&] {
      bury_orphans([this](pid_t pid) { return pid == reaper_.pid() || workers_.awaits(pid); });
      workers_.look_for_gone();
      return workers_.all_gone();
    });
  }

  AsAgent as_agent_;
  Signals signals_{std::vector<int>{}};
  Reaper reaper_;
  base::Outlet console_;
  EventLoop loop_{console_};
  std::vector<End> ends_;
  Workers workers_{loop_, reaper_, 2, [this](const End& end) { ends_.push_back(end); }};
  SpawnContext context_{.signals = signals_, .reaper_pipe = reaper_.pipe()};
};

TEST_F(WorkersTest, TellHowTheyEnd) {
  EXPECT_TRUE(workers_.all_ended() && workers_.all_gone()) << "before they are started";
  ASSERT_EQ(start(0, "/bin/sh", "exit 3"), 0);
  EXPECT_FALSE(workers_.all_ended() || workers_.all_gone());
  run_until_ended(1);
  EXPECT_TRUE(workers_.all_ended() && workers_.all_gone());
  ASSERT_EQ(start(1, "/bin/sh", "kill -9 $$"), 0);
  run_until_ended(2);
  EXPECT_EQ(ends_[0].rank, 0);
  EXPECT_EQ(ends_[0].exit_code, 3);
  EXPECT_EQ(ends_[1].rank, 1);
  EXPECT_EQ(ends_[1].signal, SIGKILL);
}

TEST_F(WorkersTest, KeepToTheCoresThatThePlanGivesThem) {
  const int core = base::affinity_list().back();
  const Plan plan{.workers = 2, .worker_cores = {{core}, {}}};
  const std::optional<cpu_set_t> cores = cores_of_worker(plan, 0);
  ASSERT_TRUE(cores);
  context_.cores = &*cores;
  ASSERT_EQ(start(0, "/bin/sh", "grep -q '^Cpus_allowed_list:.'" + std::to_string(core) + "'$' /proc/self/status"), 0);
  run_until_ended(1);
  EXPECT_EQ(ends_[0].exit_code, 0);
  EXPECT_FALSE(cores_of_worker(plan, 1)) << "not bound";
  EXPECT_FALSE(cores_of_worker({.workers = 1}, 0));
}

TEST_F(WorkersTest, AProgramThatCannotRunIsNoWorker) {
  EXPECT_EQ(start(0, "/no/such/program", ""), ENOENT);
  EXPECT_TRUE(workers_.all_gone());
}

TEST_F(WorkersTest, AreGoneWithTheLastOfTheirGroup) {
  ASSERT_EQ(start(0, "/bin/sh", "sleep 60 & exit 0"), 0);
  run_until_ended(1);
  EXPECT_TRUE(workers_.all_ended());
  EXPECT_FALSE(workers_.all_gone());
  workers_.end_all(SIGTERM);
  wait_until_gone();
}

TEST_F(WorkersTest, AStoppedOneIsKilledInsteadOfAsked) {
  ASSERT_EQ(start(0, "/bin/sh", "trap 'exit 5' TERM; kill -STOP $$; exit 6"), 0);
  std::vector<pid_t> children;
  wait_until([&] {
    children.clear();
    bury_orphans([&](pid_t pid) {
      if (workers_.awaits(pid)) children.push_back(pid);
      return true;
    });
    return children.size() == 1 && process_state(children[0]).is_stopped();
  });
  workers_.end_all(SIGTERM);
  run_until_ended(1);
  EXPECT_EQ(ends_[0].signal, SIGKILL);
}

TEST_F(WorkersTest, WhoIsAbandonedLivesOnAndIsNobodysAnyMore) {
  ASSERT_EQ(start(0, "/bin/sh", "exec sleep 60"), 0);
  const std::vector<pid_t> groups = workers_.abandon_all();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_TRUE(workers_.all_gone());
  EXPECT_FALSE(workers_.awaits(groups[0]));
  EXPECT_NE(process_state(groups[0]).letter, 0);
  kill(groups[0], SIGKILL);
  EXPECT_EQ(waitpid(groups[0], nullptr, 0), groups[0]);
  loop_.turn(EventLoop::Clock::now());
  EXPECT_TRUE(ends_.empty());
}

}  // namespace
}  // namespace lockstep::launch
