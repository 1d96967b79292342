#pragma once

// A node's part in a job over several: it asks the hosting agent for a place, tells it what happens to the workers
// here, and does what it is told. On the hosting node the same, beside the host (host.h).

#include <memory>
#include <optional>
#include <string>

#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/nodes/host.h"
#include "lockstep/launch/nodes/host_line.h"
#include "lockstep/launch/nodes/nodes.h"
#include "lockstep/launch/nodes/store_desk.h"
#include "lockstep/launch/nodes/tls.h"
#include "lockstep/launch/workers/reaper.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launch {

class NodeMember : public Nodes {
 public:
  /// Resolves the endpoint and listens there when this agent hosts. `plan.nodes` is set. Throws UsageError: an endpoint
  /// that cannot be resolved, that this agent must host and cannot, or that is beyond loopback without a key.
  NodeMember(const Plan& plan, EventLoop& loop, base::Outlet& console, Reaper& reaper);
  ~NodeMember() override;

  Meeting meet(const std::function<int()>& stop_signal) override;
  void attend(RunningAttempt* attempt) override;
  void on_stop(int signal) override;
  void let_go() override { let_go_ = true; }
  void on_failure(const Verdict& verdict, const std::string& report) override;
  Decision agree(AttemptResult& result, const AttemptFacts& facts, const std::function<int()>& stop_signal) override;
  bool speaks() const override { return plan_.leash < 0 || host_ != nullptr; }
  std::string report(const std::function<std::string()>& own, bool wanted,
                     const std::function<int()>& stop_signal) override;

 private:
  using Clock = EventLoop::Clock;

  void listen();
  void say_reason(const std::string& reason);
  void on_message(const rendezvous::Message& message);
  void lose(const std::string& why, Parting how);
  void end_attempt();
  void adopt(const rendezvous::Outcome& outcome, AttemptResult& result);
  void open_desk();

  const Plan& plan_;
  const NodesSettings settings_;
  EventLoop& loop_;
  base::Outlet& console_;
  Reaper& reaper_;
  const std::string own_host_;
  const rendezvous::SocketAddress address_;
  std::unique_ptr<Tls> tls_;    // before all that uses it
  ReportCollection reports_;    // before the host
  std::unique_ptr<Host> host_;  // where this agent hosts
  HostLine line_;
  std::unique_ptr<StoreDesk> desk_;  // for the workers of an attempt
  Clock::time_point waits_since_ = Clock::now();
  std::string reason_;  // to wait, as said last
  EventLoop::Handle saying_, lease_end_;
  std::optional<std::string> refused_;
  std::optional<std::string> lost_;  // why the hosting agent is no longer there
  Clock::time_point kill_at_;        // then workers must not be there either
  std::optional<rendezvous::Start> start_;
  std::optional<rendezvous::Outcome> outcome_;
  std::int64_t generation_ = 0;
  RunningAttempt* attempt_ = nullptr;
  bool report_wanted_ = false, report_taken_ = false;  // by the hosting agent
  bool let_go_ = false;
  bool over_ = false;     // the job's outcome is known
  bool end_now_ = false;  // the attempt is to be ended
  bool blamed_ = false;   // this node has told of a failure, or of a signal
};

}  // namespace lockstep::launch
