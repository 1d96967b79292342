#pragma once

// The store of the generation that runs, where it is kept: on the hosting agent, or on the only one.

#include <cstdint>
#include <functional>
#include <utility>

#include "lockstep/rendezvous/messages.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep::launch {

class StoreKeeper {
 public:
  using Answer = std::function<void(std::uint64_t client, const rendezvous::StoreAnswer&)>;

  explicit StoreKeeper(Answer answer) : answer_(std::move(answer)) {}
  StoreKeeper(const StoreKeeper&) = delete;
  StoreKeeper& operator=(const StoreKeeper&) = delete;

  /// A new store, and nobody waits for the old one any more.
  void begin(std::int64_t generation);
  /// Whether the message was the store's. An ask of another generation is not answered: its worker is about to end.
  bool take(std::uint64_t client, const rendezvous::Message& message);
  void leave(std::uint64_t client) { store_.leave(client); }

 private:
  const Answer answer_;
  rendezvous::Store store_;
  std::int64_t generation_ = 0;
};

}  // namespace lockstep::launch
