// The process that saves, for which a script stands.

#include "lockstep/launch/agent/state_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/base/published_text.h"
#include "lockstep/launch/workers/reaper.h"
#include "tests/support/pipe.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/zombie_keeper.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;

class StateSaverTest : public ::testing::Test {
 protected:
  void save_by(const std::string& script) {
    plan_.state_saver = folder_.write("save", "#!/bin/sh\n" + script);
    std::filesystem::permissions(plan_.state_saver, std::filesystem::perms::owner_all);
    base::publish(segment_, "a plan");
    saver_.save(segment_, plan_, context_);
  }

  pid_t saving() const {
    const std::string text = lockstep::testing::read_file(folder_.file("pid"));
    return text.ends_with('\n') ? std::stoi(text) : -1;
  }

  const lockstep::testing::ScratchFolder folder_;
  lockstep::testing::Pipe said_;
  base::Segment segment_ = base::Segment::create(1);
  Plan plan_;
  Signals signals_{std::vector<int>{}};
  Reaper reaper_;
  base::Outlet console_ = base::Outlet::console(said_.writer.get());
  EventLoop loop_{console_};
  StateSaver saver_{loop_, console_};
  const SpawnContext context_{.signals = signals_, .descriptors = {1024, 1024}, .reaper_pipe = reaper_.pipe()};
};

TEST_F(StateSaverTest, IsWaitedFor) {
  save_by("[ $1 = save-segment ] && sleep 0.1 && touch " + folder_.file("saved"));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("saved")));
  EXPECT_EQ(said_.read_all(), "");
}

TEST_F(StateSaverTest, IsKilledForWhoDoesNotWait) {
  saver_.hurry();  // of no meaning before
  EventLoop::Handle looking;
  std::function<void()> look = [&] {
    if (saving() >= 0) return saver_.hurry();
    looking = loop_.at(EventLoop::Clock::now() + std::chrono::milliseconds(20), look);
  };
  look();
  save_by("echo $$ > " + folder_.file("pid") + "; exec sleep 1000");
  EXPECT_EQ(said_.read_all(), "lockstep: the last committed step is not saved: a signal came meanwhile\n");
  ASSERT_GT(saving(), 0);
  EXPECT_EQ(kill(saving(), 0), -1);
}

// As where the disk stands still: the agent must end all the same.
TEST_F(StateSaverTest, IsLeftBehindWhereItCannotBeKilled) {
  std::unique_ptr<lockstep::testing::ZombieKeeper> keeper;
  EventLoop::Handle looking;
  std::function<void()> look = [&] {
    if (saving() >= 0) keeper = std::make_unique<lockstep::testing::ZombieKeeper>(saving());
    if (keeper) return saver_.hurry();
    looking = loop_.at(EventLoop::Clock::now() + std::chrono::milliseconds(20), look);
  };
  look();
  save_by("echo $$ > " + folder_.file("pid") + "; exec sleep 1000");
  if (!keeper->keeps()) GTEST_SKIP() << "no ptrace here";
  EXPECT_THAT(said_.read_all(), HasSubstr("lockstep: process " + std::to_string(saving()) +
                                          ", which saves, cannot be killed, left behind\n"));
  keeper.reset();
  EXPECT_EQ(waitpid(saving(), nullptr, 0), saving());
}

}  // namespace
}  // namespace lockstep::launch
