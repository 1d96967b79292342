#pragma once

// How ranks that were started by hand find out which of them share a node: each tells rank 0 on which machine it is,
// and hears which of its machine's ranks it is. Only then does anybody wait at the node's or the network's meeting
// point. Torch-free.

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/rendezvous/init_method.h"

namespace lockstep::comm {

/// Where a rank is on its node.
struct Seat {
  int local_rank = 0;
  int local_world = 1;
  int first = 0;  ///< the node's lowest rank

  bool operator==(const Seat&) const = default;
};

/// Of all ranks, whose machines these are. Pure.
std::vector<Seat> seats_of(const std::vector<std::string>& machines);

/// What this process shares memory and processes' numbers with: the start of its kernel, its namespaces of processes
/// and of the network (where abstract sockets are), its user.
std::string own_machine();

/// Called by every rank of a place that knows no nodes; returns it with them, and with names for the run and the node
/// that no other start has. `machine` is own_machine(), but for tests. Error names the ranks that did not come in time;
/// UsageError, on all ranks, those that contradict rank 0 or one another.
rendezvous::Place call_roll(const rendezvous::Place& place, rendezvous::Backend backend,
                            std::chrono::milliseconds timeout, const std::string& machine = own_machine());

}  // namespace lockstep::comm
