#pragma once

// The hosting agent's part: who has come, when a generation starts, which failure was first, what follows. It answers
// messages and timers and never waits; what is to be done it asks of pure functions (rendezvous/membership.h,
// outcome.h).

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/agent/policy.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/nodes/following.h"
#include "lockstep/launch/nodes/outcome.h"
#include "lockstep/launch/nodes/reception.h"
#include "lockstep/launch/nodes/report_collection.h"
#include "lockstep/launch/nodes/settings.h"
#include "lockstep/launch/nodes/store_keeper.h"
#include "lockstep/rendezvous/host_record.h"
#include "lockstep/rendezvous/membership.h"

namespace lockstep::launch {

/// The next generation starts this much later than the last moment of a cut-off node's workers.
inline constexpr std::chrono::milliseconds kCutOffMargin{500};

struct HostSettings {
  NodesSettings nodes;
  rendezvous::Application own;  ///< what all who come must agree with
  std::string run_id;           ///< TORCHELASTIC_RUN_ID of all
  std::string master_addr;
  int max_restarts = 0;
  std::vector<int> no_restart_codes;
  bool has_heirs = false;  ///< whether others may host in this agent's place, where the membership allows it
  std::optional<Inheritance> inherited = {};
  ReportCollection* reports = nullptr;  ///< where the nodes' reports go; null: they send none
  std::function<std::unique_ptr<Channel>(int fd)> accept_channel;  ///< on an accepted socket
  std::function<void(int fd)> meets = {};                          ///< another agent is let in, over this socket
  std::function<void(const std::string& line)> says = {};          ///< for people at this node
};

class Host {
 public:
  /// `listener` listens already; `own` is connected to the hosting agent itself, whose seat is the first.
  Host(EventLoop& loop, HostSettings settings, base::UniqueFd listener, base::UniqueFd own);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  /// Ends the job for everybody: the agent leaves before a generation has started.
  void dismiss(int code, const std::string& text);
  /// Whether everybody has heard what was told last.
  bool all_has_arrived() const { return reception_.all_has_arrived(); }

 private:
  using Clock = EventLoop::Clock;
  struct Seat {
    rendezvous::Node node;
    std::optional<rendezvous::Done> done;
    std::string told;     // the reason to wait that it knows
    std::string address;  // where it would host
    bool stops = false;   // it was asked to end
    bool succeeded() const { return done && done->code == 0; }
  };

  void on_message(std::uint64_t id, const rendezvous::Message& message);
  void admit(std::uint64_t id, const rendezvous::Join& join);
  void on(Seat& seat, const rendezvous::Ready& ready);
  void on(Seat& seat, const rendezvous::Failed& failed);
  void on(Seat& seat, const rendezvous::Stopping& stopping);
  void on(Seat& seat, const rendezvous::Done& done);
  void on_gone(std::uint64_t id, const std::string& why, Parting how, Clock::time_point heard);
  void consider();
  void start(const std::vector<std::uint64_t>& ranks);
  void end_all();
  void conclude_when_all_done();
  void finish(const rendezvous::Message& last);
  rendezvous::Situation situation() const;

  EventLoop& loop_;
  const HostSettings settings_;
  Reception reception_;
  std::uint64_t own_ = 0;  // the hosting agent's seat
  EventLoop::Handle again_, telling_, room_limit_;
  std::string reason_;                         // why nothing happens, for those who wait
  bool tells_ = false;                         // soon
  std::map<std::uint64_t, Seat> seats_;        // of those who are admitted, by arrival
  std::map<std::string, int> ranks_of_hosts_;  // in the last generation that it was in
  Following following_;
  rendezvous::Time since_{0}, not_before_{0};
  std::int64_t generation_ = 0;
  bool running_ = false, ending_ = false, finished_ = false;
  StoreKeeper store_;     // of the workers
  std::string newcomer_;  // room is made for it
  std::vector<Blame> blames_;
  std::optional<Stop> stop_;  // the first that was asked to
  History history_;
  rendezvous::HostRecord record_;  // of the other hosts
};

}  // namespace lockstep::launch
