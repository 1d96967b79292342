#pragma once

// One connection between two agents, on the event loop: messages in, messages out, nobody waits. What is sent and not
// taken is kept, up to a limit; who does not read is dropped.

#include <functional>
#include <memory>
#include <string>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/nodes/channel.h"
#include "lockstep/rendezvous/messages.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep::launch {

/// What the end of a connection says of whoever was at the other side.
enum class Parting {
  closed,  ///< he closed it, or died: the kernel's word
  cut,     ///< a reset, or we would not go on: he may live
  silent,  ///< nothing was heard for too long: he may live
};

/// What may wait for a peer that does not read; for one who is trusted also the answers that his workers may wait for.
inline constexpr std::size_t kMostUnsent = 256 * 1024;
inline constexpr std::size_t kMostUnsentToTrusted =
    kMostUnsent + rendezvous::kMostWaiting * rendezvous::kLongestMessage;

class Connection {
 public:
  struct Events {
    std::function<void(const rendezvous::Message&)> message;
    /// Once, and not because of close(). The connection must outlive the call.
    std::function<void(const std::string& why, Parting how)> closed;
  };

  /// A connected socket. `channel` uses it.
  Connection(EventLoop& loop, base::UniqueFd fd, std::unique_ptr<Channel> channel, Events events);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  /// For both sides, whoever else has the socket: the reaper does.
  ~Connection() { close(); }

  void send(const rendezvous::Message& message);
  /// From now on long messages are read, and more may wait to be. Returns the socket, which stays this object's.
  int trust() {
    longest_ = rendezvous::kLongestMessage;
    most_unsent_ = kMostUnsentToTrusted;
    return fd_.get();
  }
  /// Whether all that was sent has been handed to the kernel, or never will be.
  bool settled() const { return !open_ || unsent_.empty(); }
  /// Whether the other machine has all of that, as its kernel says, or never will. Who ends before takes it back, if a
  /// word of the other side comes too late: the kernel answers that with a reset.
  bool has_arrived() const;
  bool open() const { return open_; }
  /// Ends it without a word to the owner.
  void close();

 private:
  void on_event();
  void read();
  void take_messages();
  void write();
  void watch();
  void fail(const std::string& why);

  EventLoop& loop_;
  const base::UniqueFd fd_;
  const std::unique_ptr<Channel> channel_;
  const Events events_;
  std::string received_;
  std::string unsent_;
  std::size_t longest_ = rendezvous::kLongestFromStranger;
  std::size_t most_unsent_ = kMostUnsent;
  bool open_ = true;
  bool watches_room_ = false;
  bool closed_by_peer_ = false;
  EventLoop::Handle watch_;
};

}  // namespace lockstep::launch
