#pragma once

// The flags about a job's nodes, and what they mean when there are several: pure.

#include "lockstep/launch/flags/options.h"
#include "lockstep/rendezvous/schedulers.h"

namespace lockstep::launch {

/// "2", "1:4" or "auto".
void read_nnodes(NodeOptions& options, const std::string& name, const std::string& value);
/// "join_timeout=60,is_host=1": torchrun's keys. Others are an error, but where one node has nothing to agree upon.
void read_rdzv_conf(NodeOptions& options, const std::string& name, const std::string& value);
/// An endpoint "HOST[:PORT]"; `port` where it names none. Throws UsageError.
std::pair<std::string, int> endpoint_of(const std::string& text, int port);
/// Whether the number of nodes is given, and which of them this is is not: a scheduler may tell.
bool asks_for_rank(const Options& options);
/// --nnodes auto, or asks_for_rank(): what the scheduler has told, where the flags say nothing else. UsageError when
/// nobody says where several nodes meet.
void settle_nodes(Options& options, const rendezvous::AutoNodes& told);
/// How the nodes meet. Throws UsageError.
NodesSettings nodes_settings(const Options& options);

/// No more than what is the same on all nodes: their number, and --rdzv-conf. Throws UsageError.
NodesSettings nodes_settings_of_conf(const NodeOptions& options);

}  // namespace lockstep::launch
