#pragma once

// Ranks that have a c10d::Store in common, as all that torch.distributed makes has one.

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "lockstep/comm/network/meeting.h"

namespace lockstep::comm {

/// The store, as long as its ranks meet. What keys begin with is this time's alone: nothing of a dead rank is under it.
class StoreMeeting final : public Meeting {
 public:
  StoreMeeting(c10d::Store& store, std::string keys) : store_(store), keys_(std::move(keys)) {}

  void publish(const std::string& key, const std::string& value) override;
  std::optional<std::string> look_up(const std::string& key) override;
  void withdraw(const std::string& key) override;
  std::string name() const override { return "torch.distributed's store"; }

 private:
  c10d::Store& store_;
  const std::string keys_;
};

/// The interface that this process's environment asks for (rendezvous/environment.h).
std::string interface_asked_for();

/// By which other machines reach this one: the address of the interface that is asked for, else that by which it would
/// reach the store's host, as all ranks have; where the store is a file, that of its own name. UsageError when there is
/// none.
std::string own_address_beside(c10d::Store& store);

}  // namespace lockstep::comm
