#pragma once

// Runs a function as every rank of a group: in threads of this process, or in forked
// processes. What a rank throws or expects in vain fails the test that called.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/base/segment.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/network/hierarchical_group.h"
#include "lockstep/comm/network/network_group.h"

namespace lockstep::support {

enum class RankKind {
  single,
  threads,
  processes,
  wrapped,       ///< threads, whose groups are wrapped in all that hand calls on: traced, recorded, failing never
  nodes,         ///< processes, each a node of its own, which the others reach over TCP only
  mpi,           ///< the same, which mpirun has started: each runs the whole program and is one rank
  hierarchical,  ///< processes, of which two share a node as long as there are two, in groups of two levels
  gloo,          ///< as nodes, whose payload libtorch's Gloo carries
  c10d           ///< as nodes, over a c10d::Backend that is made of a group of ours
};
const char* to_string(RankKind kind);

using RankBody = std::function<void(std::shared_ptr<comm::Group>)>;

struct RankOptions {
  std::chrono::milliseconds timeout{20'000};
  /// A rank that ends by the signal with this number is no failure (kill tests).
  int allowed_signal = 0;
  /// What carries the payload between nodes.
  comm::MakeStreams streams = comm::tcp_streams;
  /// What they become the group of.
  comm::MakeGroup group = comm::flat_group;
};

/// The same, where libtorch's Gloo carries it.
RankOptions over_gloo(RankOptions options = {});

/// A place on a node of a job of several, which all meet at `port` of 127.0.0.1. The group of what shares the node's
/// `segment`.
std::shared_ptr<comm::Group> join_nodes(base::Segment segment, const std::vector<int>& ranks_per_node, int node,
                                        int local_rank, int port, const RankOptions& options);
/// A port that is free now.
int free_port();

/// Processes on so many nodes, with so many ranks each.
void run_nodes(const std::vector<int>& ranks_per_node, const RankBody& body, RankOptions options = {});

/// Returns when all ranks are done.
void run_ranks(RankKind kind, int ranks, const RankBody& body, RankOptions options = {});

/// Does what is mostly waiting a few at a time, each in a process of its own, which may start ranks that are processes.
/// One after the other under a sanitizer, where so many forks would take longer than the deadlines of the groups.
void at_once(const std::vector<std::function<void()>>& waits);

}  // namespace lockstep::support
