#include "lockstep/launch/hosts/starter.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/agent/port.h"
#include "lockstep/launch/agent/state_saver.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/hosts/discovery.h"
#include "lockstep/launch/hosts/host_changes.h"
#include "lockstep/launch/hosts/remote_agent.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/launch/nodes/hosting_agent.h"
#include "lockstep/launch/workers/signals.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using Clock = EventLoop::Clock;

// What ssh ends with when it has failed itself.
constexpr int kShellFailed = 255;
// After a failure the agents end by what they tell each other; one that has not met them yet does not hear of it.
constexpr milliseconds kEndTogether{2'000};
// When the job has succeeded the others may show their output for as long as its first agent could, 30 s. One that was
// started and never let in looks for the others until then.
constexpr milliseconds kOthersShow{35'000};
// That an agent is started again is said so much later: when the job has failed for good its first agent ends within
// this time (5 s for its output, 10 s for the others' reports), and then it is not so.
constexpr milliseconds kGoesOn{16'000};
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

// Each agent takes some descriptors here. The remote shells get the old limit back.
rlimit raise_own_descriptor_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return limit;
}

// Where an agent is, or was: the first is the one at which they meet. Its host has the same number.
struct Place {
  bool ended() const { return !agent || agent->over(); }
  bool over() const { return ended() && !waits; }

  std::unique_ptr<RemoteAgent> agent;  // none where none could be started
  Clock::time_point started;
  int failures = 0;
  int code = kExitDone;  // of the last failure
  bool tells = false;    // of it, soon
  bool leaves = false;   // its host is not there any more
  bool waits = false;    // to be started again
  EventLoop::Handle again, telling, deadline;
};

class Starter {
 public:
  Starter(HostsJob job, const Plan& plan, const std::string& key)
      : job_(std::move(job)), plan_(plan), key_(key), signals_(plan.signals) {}

  int run() {
    if (job_.discovery) find_first_hosts();
    while (true) {
      for (std::size_t i = 0; i < job_.hosts.size(); ++i) start(i);
      loop_.run_until([this] { return std::ranges::all_of(places_, [](const auto& place) { return place->over(); }); });
      if (!std::exchange(moves_, false)) break;
      if (stop_signal_ != 0) {
        code_ = 128 + stop_signal_;
        break;
      }
      job_.port_is_chosen = false;  // once is enough: ports are drawn at random
      job_.endpoint = endpoint_on(job_.hosts, free_port());
      places_.clear();
    }
    out_.flush(Clock::now() + base::kPatience, signals_.stop_fd());
    errors_.flush(Clock::now() + base::kPatience, signals_.stop_fd());
    return code_;
  }

 private:
  void say(std::size_t index, const std::string& what) {
    errors_.say("lockstep: " + job_.hosts[index].name + ": " + what + "\n");
  }

  void start(std::size_t index) {
    const auto output = [this, index](int stream, const std::string& lines) {
      const auto says = [&lines](std::string_view text) { return lines.find(text) != std::string::npos; };
      if (index == 0 && job_.port_is_chosen && says(job_.endpoint) && says(kPortIsTaken)) port_is_taken_ = true;
      base::Outlet& outlet = stream == 1 ? out_ : errors_;
      outlet.say(with_prefix(job_.hosts[index].name + ": ", lines));
      // Who writes more than the terminal takes waits with it, over there.
      if (outlet.pending()) outlet.flush(Clock::now() + kStandstill, signals_.stop_fd());
      if (stream == 1) write_out();
    };
    if (index == places_.size()) places_.push_back(std::make_unique<Place>());
    Place& place = *places_[index];
    place.started = Clock::now();
    place.waits = false;
    place.agent = std::make_unique<RemoteAgent>(
        loop_, agent_command(job_, index), signals_, descriptors_,
        RemoteAgent::Events{.output = output, .ended = [this, index](int code) { on_end(index, code); }});
    place.agent->tell(key_);
  }

  // While the job runs: where there is no process to be had, that is one host's failure.
  void start_late(std::size_t index) {
    try {
      start(index);
    } catch (const Error& error) {
      say(index, "its agent cannot be started: " + std::string(error.what()));
      on_end(index, kExitFailure);
    }
  }

  // The loop writes what waits for standard error; the rest is looked after here.
  void write_out() {
    out_.step();
    if (out_.pending()) writing_ = loop_.at(Clock::now() + milliseconds(20), [this] { write_out(); });
  }

  void on_end(std::size_t index, int code) {
    Place& place = *places_[index];
    place.deadline = {};
    if (index == 0 && code == kExitUsage && stop_signal_ == 0 && job_.port_is_chosen && port_is_taken_) {
      say(0, "the port was free here, where it was chosen: all agents are started again, with another");
      moves_ = true;
      // They have met nobody: one that has failed already was refused by whoever listens there.
      for (std::size_t i = 1; i < places_.size(); ++i) *places_[i] = Place{};
      ending_ = false;
      deadline_ = {};
      code_ = kExitDone;
      return;
    }
    if (index == 0 && code == kExitDone) succeeded_ = true;
    if (index == 0 && !ending_) end_after(code == kExitDone ? kOthersShow : kEndTogether);
    if (code == kExitDone || place.leaves || succeeded_) return;
    ++place.failures;
    place.code = code;
    const bool again = !ending_ && !places_[0]->ended() &&
                       starts_again({.hosts = index == 0,
                                     .code = code,
                                     .failures = place.failures,
                                     .lived = std::chrono::duration_cast<milliseconds>(Clock::now() - place.started)},
                                    plan_.max_restarts, job_.discovery.has_value());
    if (again) {
      place.waits = true;
      place.again = loop_.at(Clock::now() + wait_to_start_again(place.failures), [this, index] { start_late(index); });
      if (!std::exchange(place.tells, true))
        place.telling = loop_.at(Clock::now() + kGoesOn, [this, index, &place] {
          place.tells = false;
          say(index, "its agent has ended with exit code " + std::to_string(place.code) + ": it is started again");
        });
      return;
    }
    if (code == kShellFailed) say(index, "the remote shell has failed (exit code 255)");
    if (code_ == kExitDone) code_ = code == kShellFailed ? int(kExitFailure) : code;
    if (code == 128 + SIGKILL && stop_signal_ != 0) code_ = 128 + stop_signal_;
    if (!ending_) end_after(kEndTogether);
  }

  // Nobody else is started.
  void expect_end() {
    for (const auto& place : places_) {
      place->again = {};
      place->telling = {};
      place->waits = false;
    }
  }

  // Later all are let go, and later still killed.
  void end_after(milliseconds time) {
    ending_ = true;
    expect_end();
    deadline_ = loop_.at(Clock::now() + time, [this] {
      for (std::size_t i = 0; i < places_.size(); ++i)
        if (RemoteAgent* agent = places_[i]->agent.get())
          i == 0 ? agent->let_go_and_hold() : agent->let_go();  // the first one may be long, and the user not wait
      deadline_ = loop_.at(Clock::now() + plan_.grace + kEndAlone, [this] { kill_all(); });
    });
  }

  // The first one later: rank 0 has left the job's state there.
  void kill_all() {
    for (std::size_t i = 1; i < places_.size(); ++i) kill(i);
    if (first_saves_.count() == 0) return kill(0);
    if (places_[0]->ended()) return;
    told_of_saving_ = true;
    say(0, "its agent may be saving the last committed step, and is waited for: " +
               std::to_string(first_saves_ / std::chrono::seconds(1)) + " s at most, or until another signal");
    deadline_ = loop_.at(Clock::now() + first_saves_, [this] { kill(0); });
  }

  void kill(std::size_t index) {
    if (places_[index]->ended()) return;
    say(index, "the agent does not end: its remote shell is killed, and processes may be left there");
    places_[index]->agent->kill();
  }

  // As the agent itself does: the first one is passed on as it is, and the second as well.
  void on_signals() {
    while (const int signal = signals_.next()) {
      if (signal == SIGCHLD) continue;
      // Its agent takes a second one so, too; so does who has read that a signal ends the wait.
      if (stop_signal_ != 0 || told_of_saving_) first_saves_ = milliseconds(0);
      if (stop_signal_ == 0) stop_signal_ = signal;
      for (const auto& place : places_)
        if (place->agent) place->agent->tell(std::to_string(signal) + "\n");
      end_after(plan_.grace + kShellEnd);
    }
  }

  void discover(std::function<void(const std::vector<HostSlots>&)> found,
                std::function<void(const std::string&)> failed) {
    discovery_.emplace(
        loop_, job_.discovery->script, signals_, descriptors_,
        Discovery::Events{
            .found = std::move(found), .failed = std::move(failed), .said = [this](const std::string& lines) {
              errors_.say(with_prefix("host discovery: ", lines));
            }});
  }

  void find_first_hosts() {
    const rendezvous::Limits& limits = job_.discovery->limits;
    std::string wrong;
    std::size_t known = 0;
    discover(
        [&](const std::vector<HostSlots>& hosts) {
          if (hosts.size() != known && int(hosts.size()) < limits.min_nodes)
            errors_.say("lockstep: waiting for hosts: " + std::to_string(hosts.size()) + " of at least " +
                        std::to_string(limits.min_nodes) + "\n");
          known = hosts.size();
          job_.hosts = hosts;
        },
        [&](const std::string& why) { wrong = why; });
    const auto enough = [&] {
      return !wrong.empty() || stop_signal_ != 0 || (known > 0 && int(known) >= limits.min_nodes);
    };
    const bool in_time = loop_.run_until(enough, Clock::now() + limits.join_timeout);
    discovery_.reset();
    const std::string flag = "run: --host-discovery-script '" + base::shown(job_.discovery->script) + "': ";
    if (!wrong.empty()) throw UsageError(flag + wrong);
    if (!in_time)
      throw UsageError(flag + "the time is up: " + std::to_string(known) + " of at least " +
                       std::to_string(limits.min_nodes) + " hosts");
    if (stop_signal_ != 0) job_.hosts.clear();
    if (job_.hosts.empty()) return void(code_ = 128 + stop_signal_);
    if (job_.hosts.size() > most_agents(limits)) job_.hosts.resize(most_agents(limits));  // change() says so
    job_.endpoint = endpoint_on(job_.hosts, job_.discovery->port);
    discover([this](const std::vector<HostSlots>& hosts) { change(hosts); },
             [this](const std::string& why) {
               if (std::exchange(trouble_, why) != why)
                 errors_.say("lockstep: --host-discovery-script: " + why + ": the hosts stay as they are\n");
             });
  }

  void change(const std::vector<HostSlots>& found) {
    trouble_.clear();
    if (ending_ || places_.empty() || places_[0]->ended()) return;
    std::vector<HostSlots> now;
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (places_[i]->leaves && places_[i]->over()) continue;
      now.push_back(job_.hosts[i]);
      numbers.push_back(i);
    }
    const HostChanges changes = changes_of(now, found);
    if (changes.first_has_other_slots && !std::exchange(keeps_slots_, true))
      say(0, "has another number of slots now, but the agents meet there: it stays as it is");
    // One list may be a script's mistake: without the first host there is no job.
    const bool without_first = std::ranges::find(changes.gone, 0u) != changes.gone.end();
    if (!std::exchange(without_first_, without_first) && without_first) return;
    for (const std::size_t gone : changes.gone) dismiss(numbers[gone]);
    for (const HostSlots& host : changes.come) {
      if (ending_) return;
      const auto there = std::size_t(
          std::ranges::count_if(places_, [](const auto& place) { return !place->leaves || !place->over(); }));
      if (const std::size_t most = most_agents(job_.discovery->limits); there >= most) {
        if (!std::exchange(too_many_, true))
          errors_.say("lockstep: --host-discovery-script: there are more than " + std::to_string(most) + " hosts (" +
                      std::to_string(kMostSpares) + " beyond --nnodes): the others wait until one of these is gone\n");
        return;
      }
      const auto free = std::ranges::find_if(places_, [](const auto& place) { return place->leaves && place->over(); });
      const auto index = std::size_t(free - places_.begin());
      if (index == places_.size()) job_.hosts.emplace_back();
      job_.hosts[index] = host;
      if (index < places_.size()) *places_[index] = Place{};
      say(index, "is a host now: its agent is started");
      start_late(index);
    }
  }

  // Without the first one there is no job.
  void dismiss(std::size_t index) {
    Place& place = *places_[index];
    if (place.leaves || ending_) return;
    place.leaves = index != 0;
    place.again = {};
    place.telling = {};
    place.waits = false;
    say(index, index == 0 ? "is no host any more, and it is the one where the agents meet: the job ends"
                          : "is no host any more: its agent is ended");
    if (place.agent) place.agent->tell(std::to_string(SIGTERM) + "\n");
    if (index == 0) {
      job_.port_is_chosen = false;  // nor would another do
      return end_after(plan_.grace + kShellEnd);
    }
    place.deadline = loop_.at(Clock::now() + plan_.grace + kEndAlone, [this, index] { kill(index); });
  }

  HostsJob job_;
  const Plan& plan_;
  const std::string& key_;
  Signals signals_;
  const rlimit descriptors_ = raise_own_descriptor_limit();
  base::Outlet out_ = base::Outlet::console(STDOUT_FILENO);
  base::Outlet errors_ = base::Outlet::console(STDERR_FILENO);
  int code_ = kExitDone;
  int stop_signal_ = 0;
  milliseconds first_saves_ = kSaveState;
  bool told_of_saving_ = false;
  bool ending_ = false;
  bool port_is_taken_ = false, moves_ = false;                           // the chosen one, as the first agent has said
  bool succeeded_ = false;                                               // as the first agent has said
  bool keeps_slots_ = false, too_many_ = false, without_first_ = false;  // of the hosts found: what has been seen
  std::string trouble_;                                                  // with the script, as said last
  EventLoop loop_{errors_};
  const EventLoop::Handle signal_watch_ = loop_.watch(signals_.fd(), [this] { on_signals(); });
  EventLoop::Handle writing_, deadline_;
  std::vector<std::unique_ptr<Place>> places_;
  std::optional<Discovery> discovery_;
};

}  // namespace

int run_on_hosts(const HostsJob& job, const Plan& plan, const std::string& key) {
  return Starter(job, plan, key).run();
}

}  // namespace lockstep::launch
