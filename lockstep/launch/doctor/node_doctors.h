#pragma once

// The doctors of the nodes of a job, which its own agents have started, one on each: `lockstep doctor --nnodes`. They
// speak through the agents' store, as the key of the job protects it, and open no port but for the measurements.

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/launch/doctor/finding.h"

namespace lockstep::launch {

/// This node's part.
struct NodeDoctor {
  int node = 0;
  int nodes = 1;
  std::string host;
  std::string address;      ///< where the others reach it
  std::string description;  ///< describe_peer()'s
};

struct NodesVerdict {
  bool wrong = false;         ///< the same on all nodes
  std::string first_host;     ///< of node 0
  std::vector<Examined> all;  ///< on node 0 alone
};

/// Node 0 asks, the others answer. `patience`: for the first word of each. SIGPIPE must be ignored. Throws Error where
/// the agent or its store are gone.
NodesVerdict examine_nodes(const NodeDoctor& own, std::chrono::milliseconds patience);

}  // namespace lockstep::launch
