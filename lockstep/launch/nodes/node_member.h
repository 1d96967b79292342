#pragma once

// A node's part in a job over several: it asks the hosting agent for a place, tells it what happens to the workers
// here, and does what it is told. On the hosting node the same, beside the host (host.h).

#include <memory>
#include <optional>
#include <string>

#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/nodes/hosting_agent.h"
#include "lockstep/launch/nodes/nodes.h"
#include "lockstep/launch/nodes/store_desk.h"
#include "lockstep/launch/workers/reaper.h"
#include "lockstep/rendezvous/messages.h"

namespace lockstep::launch {

class NodeMember : public Nodes {
 public:
  /// `plan.nodes` is set. Throws what HostingAgent does.
  NodeMember(const Plan& plan, EventLoop& loop, base::Outlet& console, Reaper& reaper);
  ~NodeMember() override { agent_.settle(); }

  Meeting meet(const std::function<int()>& stop_signal) override;
  void attend(RunningAttempt* attempt) override;
  void on_stop(int signal) override;
  void let_go() override { let_go_ = true; }
  void on_failure(const Verdict& verdict, const std::string& report) override;
  Decision agree(AttemptResult& result, const AttemptFacts& facts, const std::function<int()>& stop_signal) override;
  bool speaks() const override { return plan_.leash < 0 || agent_.is_to_be_here(); }
  std::string report(const std::function<std::string()>& own, bool wanted,
                     const std::function<int()>& stop_signal) override;

 private:
  using Clock = EventLoop::Clock;

  void say_reason(const std::string& reason);
  void on_message(const rendezvous::Message& message);
  void lose(const std::string& why, Parting how);
  void end_attempt();
  bool may_hand_over();
  bool hand_over(const std::function<int()>& stop_signal);
  Decision go_on_without(AttemptResult& result, const std::function<int()>& stop_signal);

  const Plan& plan_;
  EventLoop& loop_;
  base::Outlet& console_;
  const std::string own_host_;
  Clock::time_point waits_since_ = Clock::now();
  std::string reason_;  // to wait, as said last
  std::string run_id_;  // of the generation that was started last
  std::optional<std::string> refused_;
  std::optional<std::string> lost_;  // why the hosting agent is no longer there
  Clock::time_point kill_at_;        // then workers must not be there either
  std::optional<rendezvous::Start> start_;
  std::optional<rendezvous::Outcome> outcome_;
  std::int64_t generation_ = 0;
  RunningAttempt* attempt_ = nullptr;
  bool report_wanted_ = false, report_taken_ = false;  // by the hosting agent
  bool let_go_ = false;
  bool asked_to_end_ = false;        // by a signal
  bool gives_up_ = false;            // the hosting agent does: nobody follows it
  bool over_ = false;                // the job's outcome is known
  bool end_now_ = false;             // the attempt is to be ended
  bool blamed_ = false;              // this node has told of a failure, or of a signal
  HostingAgent agent_;               // behind what its line's events touch
  std::unique_ptr<StoreDesk> desk_;  // for the workers of an attempt
  EventLoop::Handle saying_, lease_end_;
};

}  // namespace lockstep::launch
