#pragma once

// A member's line to the hosting agent: connecting, asking for a place, keeping alive, and what the agents' clocks
// differ by.

#include <functional>
#include <memory>
#include <string>

#include "lockstep/launch/boot_clock.h"
#include "lockstep/launch/errand.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/nodes/connection.h"
#include "lockstep/launch/nodes/settings.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launch {

class HostLine {
 public:
  using Clock = EventLoop::Clock;
  struct Events {
    std::function<void(const rendezvous::Message&)> message;
    std::function<void(const std::string& why)> waits;              ///< nobody hosts yet
    std::function<void(const std::string& why)> refused;            ///< no way to the hosting agent, for good
    std::function<void(const std::string& why, Parting how)> lost;  ///< it was there, and is no longer
    std::function<void(Clock::time_point until)> leased;            ///< lease() is another
    std::function<void(int fd, rendezvous::Join&)> joins = {};      ///< what is said first, over this socket
    std::function<void(int fd)> meets = {};                         ///< another agent has taken a connection, this one
  };

  struct Where {
    std::function<rendezvous::Resolved()> look_up;  ///< where the hosting agent listens: an Errand's work
    /// What can be used of that; may call use() instead: this agent hosts. Empty: all.
    std::function<rendezvous::Resolved(const rendezvous::Resolved&)> usable = {};
    /// The address to call from, asked when it is known where to; without a length, or empty: any.
    std::function<rendezvous::SocketAddress()> local = {};
    std::unique_ptr<Errand<rendezvous::Resolved>> begun = {};  ///< the first look, where it is under way
  };

  /// `endpoint` names the hosting agent, in words; `join` is what is said first.
  HostLine(EventLoop& loop, const NodesSettings& settings, std::string endpoint, rendezvous::Join join, Events events);
  HostLine(const HostLine&) = delete;
  HostLine& operator=(const HostLine&) = delete;

  /// Tries until somebody listens there and lets this agent say a word, or join_timeout is over: all addresses in turn.
  /// `where` is asked before each try, without holding up the loop. `channel` makes one on the connected socket.
  void connect(Where where, std::function<std::unique_ptr<Channel>(int fd)> channel);
  /// The socket is connected already.
  void use(base::UniqueFd fd, std::unique_ptr<Channel> channel);

  void send(const rendezvous::Message& message);
  bool open() const { return connection_ != nullptr && connection_->open(); }
  /// Says that we live; where the lease is over, that the hosting agent is lost.
  void keep_alive();
  /// Until then the hosting agent counts on this node. Earlier, when the machine sleeps meanwhile.
  Clock::time_point lease() const { return Clock::now() + (lease_ - BootClock::now()); }
  /// Whether a word of the hosting agent has come, and when the last one did.
  bool heard() const { return heard_; }
  Clock::time_point heard_at() const { return heard_at_; }
  /// The hosting agent's clock for a time of ours, in seconds since the epoch; and its error.
  double host_time(double own) const { return own + clock_offset_; }
  double clock_error() const;

 private:
  void try_connect();
  void call(const rendezvous::Resolved& found);
  void try_again(const std::string& why);
  void on_message(const rendezvous::Message& message);
  void lose(const std::string& why, Parting how);

  EventLoop& loop_;
  const NodesSettings& settings_;
  const std::string endpoint_;
  const rendezvous::Join join_;
  const Events events_;
  Where where_;
  rendezvous::SocketAddress address_;
  std::size_t untried_ = 0;  // addresses that are tried next, behind address_
  std::string troubles_;     // with those that were
  std::function<std::unique_ptr<Channel>(int fd)> channel_;
  const Clock::time_point began_ = Clock::now();
  // One of these at a time is awaited.
  std::unique_ptr<Errand<rendezvous::Resolved>> lookup_;
  base::UniqueFd connecting_;
  std::unique_ptr<Errand<bool>> is_tcp_store_;
  std::unique_ptr<Connection> connection_;
  EventLoop::Handle awaited_, timer_;
  bool heard_ = false;  // a message of the hosting agent
  Clock::time_point heard_at_ = Clock::time_point::min();
  std::int64_t answered_ = 0;    // by the hosting agent's clock
  std::int64_t generation_ = 0;  // the last that is known of
  bool survivor_ = false;        // of a hosting agent that is lost
  int turned_away_ = 0;          // connections that were closed before a word
  BootClock::time_point lease_ = BootClock::now() + std::chrono::hours(24 * 365);
  double clock_offset_ = 0;
  double clock_error_ = 1e9;  // when it was measured
  Clock::time_point clock_measured_ = Clock::now();
};

}  // namespace lockstep::launch
