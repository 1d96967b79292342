#pragma once

// Where the workers of this node reach the store (rendezvous/store.h): an abstract Unix socket for each attempt, on the
// agent's event loop. It takes their asks and gives them the answers; who has the store is not its business.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/nodes/connection.h"
#include "lockstep/launch/nodes/listener.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep::launch {

/// Connections of workers at a time; one more is closed. Each asks one thing at a time, so a node never has more
/// answers to come than rendezvous::kMostWaiting.
inline constexpr std::size_t kMostStoreClients = rendezvous::kMostWaiting;

class StoreDesk {
 public:
  struct Events {
    /// Its id is the desk's, and so is that of the answer; the generation is not set.
    std::function<void(const rendezvous::StoreAsk&)> ask;
    std::function<void(const rendezvous::StoreForget&)> forget;
  };

  /// Listens. Throws Error.
  StoreDesk(EventLoop& loop, Events events);
  StoreDesk(const StoreDesk&) = delete;
  StoreDesk& operator=(const StoreDesk&) = delete;

  /// For the workers: rendezvous::kAgentStoreVariable.
  const std::string& name() const { return name_; }
  /// To who has asked, if he waits still. May be called within events.ask.
  void answer(const rendezvous::StoreAnswer& answer);

 private:
  struct Client {
    std::unique_ptr<Connection> connection;
    std::int64_t waits = 0;   // the desk's id of what he has asked; 0: nothing
    std::int64_t his_id = 0;  // and his own
    bool gone = false;        // swept soon
  };

  void on_workers();
  void on_message(std::uint64_t number, const rendezvous::Message& message);
  void lose(std::uint64_t number);
  void sweep();

  EventLoop& loop_;
  const Events events_;
  const std::string name_;
  Listener listener_;
  std::map<std::uint64_t, Client> clients_;
  std::map<std::int64_t, std::uint64_t> asked_;  // who waits, by the desk's id
  std::uint64_t next_client_ = 0;
  std::int64_t last_id_ = 0;
  EventLoop::Handle sweep_;
};

}  // namespace lockstep::launch
