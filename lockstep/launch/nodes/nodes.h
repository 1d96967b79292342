#pragma once

// What the agent of one node needs of the job's other nodes: where its workers are among all, who failed first
// anywhere, and what comes next. A job on one node has no others (OneNode); several meet at an endpoint
// (node_member.h).

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/launch/agent/policy.h"
#include "lockstep/launch/agent/running_attempt.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/nodes/store_desk.h"
#include "lockstep/launch/nodes/store_keeper.h"
#include "lockstep/launch/plan.h"
#include "lockstep/launch/report/verdict.h"

namespace lockstep::launch {

/// What an attempt needs to know of the others.
struct Meeting {
  NodePlace place;
  std::string master_addr;
  int master_port = 0;
  int restart_count = 0;
  std::string run_id;  ///< TORCHELASTIC_RUN_ID; empty: the agent's own
  std::string store;   ///< where the workers reach the store: rendezvous::kAgentStoreVariable
  std::int64_t generation = 0;
  std::optional<int> over;  ///< there is no attempt: the job is over, with this exit code
};

/// An agent calls meet(), starts its workers, tells what happens to them, calls agree() when none is left; and so on.
class Nodes {
 public:
  Nodes() = default;
  virtual ~Nodes() = default;
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  /// Waits until all who are in the next attempt are there. `stop_signal`: the signal that asks the agent to end
  /// meanwhile, or 0. Throws UsageError when this node cannot take part or the time is up.
  virtual Meeting meet(const std::function<int()>& stop_signal) = 0;
  /// The workers of an attempt run; null: none is left. It may be ended because of the others.
  virtual void attend(RunningAttempt* attempt) = 0;
  /// The agent was asked to end while its workers run.
  virtual void on_stop(int signal) = 0;
  /// What has started this agent from elsewhere is gone; on_stop() follows.
  virtual void let_go() {}
  /// A worker here has failed, the first on this node; `report` is what is to be said of it.
  virtual void on_failure(const Verdict& verdict, const std::string& report) = 0;
  /// No worker is left here: what comes next. Where another node decided how the job has ended, the result says so
  /// afterwards.
  virtual Decision agree(AttemptResult& result, const AttemptFacts& facts, const std::function<int()>& stop_signal) = 0;
  /// Whether it is this node's to say what holds for all: not where one terminal shows what all of them say.
  virtual bool speaks() const { return true; }
  /// When all is over here: what is to be written of the job, where `own` is this node's report. `own` is called where
  /// another node wants it, too. Not for longer than until a signal comes.
  virtual std::string report(const std::function<std::string()>& own, bool wanted,
                             const std::function<int()>& stop_signal) {
    (void)stop_signal;
    return wanted ? own() : "";
  }
};

/// No others: the store of an attempt is here.
class OneNode : public Nodes {
 public:
  OneNode(const Plan& plan, EventLoop& loop, base::Outlet& console);

  /// Throws UsageError when the port that the user named is taken.
  Meeting meet(const std::function<int()>& stop_signal) override;
  void attend(RunningAttempt*) override {}
  void on_stop(int) override {}
  void on_failure(const Verdict&, const std::string& report) override { console_.say(report); }
  Decision agree(AttemptResult& result, const AttemptFacts& facts, const std::function<int()>& stop_signal) override;

 private:
  const Plan& plan_;
  EventLoop& loop_;
  base::Outlet& console_;
  History history_;
  StoreKeeper store_;
  std::unique_ptr<StoreDesk> desk_;
};

}  // namespace lockstep::launch
