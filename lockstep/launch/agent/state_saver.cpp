#include "lockstep/launch/agent/state_saver.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <optional>
#include <string>

#include "lockstep/base/control_page.h"
#include "lockstep/base/error.h"
#include "lockstep/base/published_text.h"
#include "lockstep/launch/report/verdict.h"
#include "lockstep/launch/workers/burial.h"

namespace lockstep::launch {

void StateSaver::save(base::Segment& segment, const Plan& plan, const SpawnContext& context) {
  if (plan.state_saver.empty() || base::published(segment).empty()) return;
  const auto fail = [this](const std::string& why) {
    console_.say("lockstep: the last committed step is not saved: " + why + "\n");
  };
  base::roll_forward(segment.control());
  ExecFailure failure;
  try {
    process_ = spawn(plan.state_saver, {plan.state_saver, "save-segment", segment.path(), std::to_string(plan.workers)},
                     this_environment(), context, failure);
  } catch (const Error& error) {
    return fail(error.what());
  }
  if (failure.error != 0) return fail("cannot execute '" + plan.state_saver + "': " + std::strerror(failure.error));
  bool ended = hurried_ = false;
  const EventLoop::Handle watch = loop_.watch(process_.pidfd.get(), [&] { ended = true; });
  loop_.run_until([&] { return ended || hurried_; }, EventLoop::Clock::now() + kSaveState);
  const bool in_time = ended;
  if (!in_time) {
    kill(-process_.pid, SIGKILL);
    fail(hurried_ ? "a signal came meanwhile" : "the disk took too long");
    loop_.run_until([&] { return ended; }, EventLoop::Clock::now() + kDeathWait);
  }
  const std::optional<int> status = bury(process_.pid, std::chrono::milliseconds(0));
  if (!status)
    console_.say("lockstep: process " + std::to_string(process_.pid) +
                 ", which saves, cannot be killed, left behind\n");
  else if (in_time && WIFSIGNALED(*status))
    fail("the process that saves was killed by " + signal_name(WTERMSIG(*status)));
  process_ = {};
}

}  // namespace lockstep::launch
