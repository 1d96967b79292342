#pragma once

// How the ranks of a process group come to have a group of ours, by the store that torch.distributed gives them.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::python {

/// Where memory and processes can be shared, as one line: ranks that have equal ones are on one node.
struct NodeName {
  std::string host;        ///< for messages
  std::string kernel;      ///< this start of this kernel
  std::string namespaces;  ///< of PIDs, by which ranks watch each other, and of the network, in which they meet
  std::string to_string() const;
};
NodeName own_node();

/// Why ranks on these nodes, by rank, are no group of ours; empty when they are. Pure.
std::string refusal(const std::vector<std::string>& nodes);

struct JoinOptions {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout;
  /// What the members are called in the whole job; empty: they are the whole job.
  std::vector<std::int64_t> global_ranks;
};

/// Returns when all ranks of the group have called it: those of a node share memory, and where there are several nodes
/// all are connected by TCP. UsageError on all of them when they are no group of ours, or rank 0 does not know an
/// address by which the other nodes reach it; Error, naming a rank, when it does not come within the timeout. A group
/// within the job shares the job's fate when that has a group of ours, and names ranks as it does.
std::shared_ptr<comm::Group> join(c10d::Store& store, const JoinOptions& options);

}  // namespace lockstep::python
