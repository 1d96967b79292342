#pragma once

// The hosting agent's door: who connects, who is a stranger still, who has gone. Strangers cost a bounded number of
// descriptors and bytes, for a bounded time.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/nodes/connection.h"
#include "lockstep/launch/nodes/listener.h"

namespace lockstep::launch {

/// How long somebody who connects may take to show that he is an agent of the job, and how many may do so at a time;
/// one more, and the oldest of them is dropped.
inline constexpr std::chrono::milliseconds kStrangersTime{5'000};
inline constexpr std::size_t kMostStrangers = 64;
/// How many are let to the door in a turn of the loop: those before them are listened to first.
inline constexpr int kGuestsAtATime = 8;

class Reception {
 public:
  using Clock = EventLoop::Clock;
  struct Settings {
    std::chrono::milliseconds keep_alive{1'000};
    std::chrono::milliseconds silence{5'000};                        ///< who says nothing for so long is lost
    std::function<std::unique_ptr<Channel>(int fd)> accept_channel;  ///< on an accepted socket
  };
  /// None is called within another, nor within a call of this class.
  struct Events {
    std::function<void(std::uint64_t id, const rendezvous::Message&)> message;
    /// Once for each who was trusted. `heard`: when he was heard last.
    std::function<void(std::uint64_t id, const std::string& why, Parting how, Clock::time_point heard)> gone;
    /// One who is trusted says that he lives. Returns how long he may count on this agent; none: Settings::silence.
    std::function<std::chrono::milliseconds(std::uint64_t id, const rendezvous::Ping&)> ping = {};
    /// For people, once each: a stranger speaks torchrun's protocol (kTcpStoreHello), in which he cannot be answered,
    /// or has not the key, or one where the job has none; no descriptor is left for who comes.
    std::function<void(const std::string& line)> notes = {};
  };

  /// `listener` listens already.
  Reception(EventLoop& loop, base::UniqueFd listener, Settings settings, Events events);
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  /// Takes a connected socket; returns its number, which counts up. `own`: the hosting agent's, which gives way to no
  /// stranger.
  std::uint64_t add(base::UniqueFd fd, std::unique_ptr<Channel> channel, bool own = false);
  /// To one who may have gone: then it is dropped.
  void send(std::uint64_t id, const rendezvous::Message& message);
  /// He belongs to the job. Returns his socket, which stays this object's.
  int trust(std::uint64_t id);
  bool trusts(std::uint64_t id) const;
  /// Ends a connection when all that was sent is out.
  void drop(std::uint64_t id, const std::string& why) { lose(id, why, Parting::cut); }
  /// Nobody else is let in, and the port is free for others; who is in stays.
  void shut();
  /// Whether everybody who is still there has all that was sent to him; not asked of the hosting agent's own.
  bool all_has_arrived() const;

 private:
  struct Guest {
    std::unique_ptr<Connection> connection;
    bool trusted = false;
    bool own = false;
    std::string from = {};                   // a stranger's address
    Clock::time_point heard = Clock::now();  // a stranger: when he came
    std::optional<std::string> gone;         // why; swept soon
    Parting how = Parting::closed;
  };

  void on_guests();
  void tell(bool& told, const std::string& line);
  void on_message(std::uint64_t id, const rendezvous::Message& message);
  void lose(std::uint64_t id, const std::string& why, Parting how);
  void sweep();
  void on_keep_alive();

  EventLoop& loop_;
  Listener listener_;
  const Settings settings_;
  const Events events_;
  std::map<std::uint64_t, Guest> guests_;
  std::uint64_t next_id_ = 0;
  bool told_of_torchrun_ = false, told_of_key_ = false, told_of_descriptors_ = false;
  EventLoop::Handle keep_alive_, sweep_;
};

}  // namespace lockstep::launch
