#include "lockstep/launch/hosts/starter.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/hosts/remote_agent.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/launch/workers/signals.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using Clock = EventLoop::Clock;

// What ssh ends with when it has failed itself.
constexpr int kShellFailed = 255;
// After a failure the agents end by what they tell each other; one that has not met them yet does not hear of it.
constexpr milliseconds kEndTogether{2'000};
// Beyond the workers' grace: for the agent to end, and for the remote shell then.
constexpr milliseconds kEndAlone{10'000};
constexpr milliseconds kShellEnd{5'000};
// For a terminal that stands still, per portion of output (64 KiB): what is kept for it grows no faster.
constexpr milliseconds kStandstill{1'000};

std::string with_prefix(const std::string& prefix, const std::string& lines) {
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < lines.size(); begin = end) {
    end = lines.find('\n', begin) + 1;
    text += prefix + lines.substr(begin, end - begin);
  }
  return text;
}

class Starter {
 public:
  Starter(const HostsJob& job, const Plan& plan, const std::string& key)
      : job_(job), plan_(plan), key_(key), signals_(plan.signals) {}

  int run() {
    for (std::size_t i = 0; i < job_.hosts.size(); ++i) start(i);
    loop_.run_until([this] { return std::ranges::all_of(agents_, [](const auto& agent) { return agent->over(); }); });
    out_.flush(Clock::now() + base::kPatience, signals_.stop_fd());
    errors_.flush(Clock::now() + base::kPatience, signals_.stop_fd());
    return code_;
  }

 private:
  void start(std::size_t index) {
    const auto output = [this, index](int stream, const std::string& lines) {
      base::Outlet& outlet = stream == 1 ? out_ : errors_;
      outlet.say(with_prefix(job_.hosts[index].name + ": ", lines));
      // Who writes more than the terminal takes waits with it, over there.
      if (outlet.pending()) outlet.flush(Clock::now() + kStandstill, signals_.stop_fd());
      if (stream == 1) write_out();
    };
    agents_.push_back(std::make_unique<RemoteAgent>(
        loop_, agent_command(job_, index), signals_,
        RemoteAgent::Events{.output = output, .ended = [this, index](int code) { on_end(index, code); }}));
    agents_.back()->tell(key_);
  }

  // The loop writes what waits for standard error; the rest is looked after here.
  void write_out() {
    out_.step();
    if (out_.pending()) writing_ = loop_.at(Clock::now() + milliseconds(20), [this] { write_out(); });
  }

  void on_end(std::size_t index, int code) {
    if (code == kExitDone) return;
    if (code == kShellFailed)
      errors_.say("lockstep: " + job_.hosts[index].name + ": the remote shell has failed (exit code 255)\n");
    if (code_ == kExitDone) code_ = code == kShellFailed ? int(kExitFailure) : code;
    if (code == 128 + SIGKILL && stop_signal_ != 0) code_ = 128 + stop_signal_;
    if (!ending_) end_after(kEndTogether);
  }

  // Later all are let go, and later still killed.
  void end_after(milliseconds time) {
    ending_ = true;
    deadline_ = loop_.at(Clock::now() + time, [this] {
      for (const auto& agent : agents_) agent->let_go();
      deadline_ = loop_.at(Clock::now() + plan_.grace + kEndAlone, [this] { kill_all(); });
    });
  }

  void kill_all() {
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      if (agents_[i]->over()) continue;
      errors_.say("lockstep: " + job_.hosts[i].name + ": the agent does not end: its remote shell is killed, and " +
                  "processes may be left there\n");
      agents_[i]->kill();
    }
  }

  // As the agent itself does: the first one is passed on as it is, and the second as well.
  void on_signals() {
    while (const int signal = signals_.next()) {
      if (signal == SIGCHLD) continue;
      if (stop_signal_ == 0) stop_signal_ = signal;
      for (const auto& agent : agents_) agent->tell(std::to_string(signal) + "\n");
      end_after(plan_.grace + kShellEnd);
    }
  }

  const HostsJob& job_;
  const Plan& plan_;
  const std::string& key_;
  Signals signals_;
  base::Outlet out_ = base::Outlet::console(STDOUT_FILENO);
  base::Outlet errors_ = base::Outlet::console(STDERR_FILENO);
  int code_ = kExitDone;
  int stop_signal_ = 0;
  bool ending_ = false;
  EventLoop loop_{errors_};
  const EventLoop::Handle signal_watch_ = loop_.watch(signals_.fd(), [this] { on_signals(); });
  EventLoop::Handle writing_, deadline_;
  std::vector<std::unique_ptr<RemoteAgent>> agents_;
};

}  // namespace

int run_on_hosts(const HostsJob& job, const Plan& plan, const std::string& key) {
  return Starter(job, plan, key).run();
}

}  // namespace lockstep::launch
