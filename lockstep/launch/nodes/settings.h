#pragma once

// How the agents of a job over several nodes meet: plain data, from the flags.

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/rendezvous/membership.h"

namespace lockstep::launch {

struct NodesSettings {
  rendezvous::Limits limits;
  std::string backend = "static";
  std::string host;  ///< the endpoint; the agent whose address it is hosts the meeting
  int port = 0;
  int node_rank = -1;           ///< --node-rank; of meaning with fixed ranks
  std::optional<bool> is_host;  ///< whether this agent hosts, where the address does not say it
  std::string local_addr;       ///< this node's address; empty: the endpoint's on the hosting node
  /// An agent that says nothing for keep_alive * misses is lost. TCP itself needs 2 s to get over a lost second.
  std::chrono::milliseconds keep_alive{1'000};
  int misses = 5;
  std::string secret_file;  ///< the job's key; empty: none
  bool insecure = false;    ///< beyond loopback without a key

  std::chrono::milliseconds silence() const { return keep_alive * misses; }
  /// An agent that was heard so long ago may host no more, nor follow: silence(), counted from the last answer that the
  /// other side is known to have, which is up to two keep-alive intervals older.
  std::chrono::milliseconds hand_over() const { return silence() + 2 * keep_alive; }
};

}  // namespace lockstep::launch
