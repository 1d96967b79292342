#pragma once

// The group of ranks on several nodes. Collectives are made of messages over a Wire and our own reduce kernels, so they
// have the bits, the deadlines and the words of those on one node, whatever carries the bytes. Within the node it has
// what its ranks share.

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/comm/network/streams.h"
#include "lockstep/comm/network/wire.h"
#include "lockstep/comm/node_group.h"

namespace lockstep::comm {

class NetworkGroup final : public Group {
 public:
  /// `nodes`: the number of each rank's, rising. `node`: the group of this node's ranks.
  NetworkGroup(std::vector<int> nodes, int rank, std::shared_ptr<Wire> wire, std::shared_ptr<NodeGroup> node);

  void all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  void broadcast(const at::Tensor& tensor, int root) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void barrier() override;
  void all_to_all(const at::Tensor& output, const at::Tensor& input) override;
  void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) override;
  void carry(Messages& messages) override { wire_->carry(messages); }
  std::shared_ptr<Group> new_group(const std::vector<int>& ranks) override;
  base::Node* shared_node() override { return node_->shared_node(); }
  Wire* wire() override { return wire_.get(); }
  bool abort(const std::string& cause, int exit_code = kExitFailure) override;

 private:
  void gather(const std::vector<at::Tensor>& outputs, const at::Tensor& dense);
  template <class Bytes>
  void swap(const CollectiveNote& note, Bytes&& bytes_for, const std::vector<std::byte*>& from, std::size_t size);

  const std::vector<int> nodes_;
  std::shared_ptr<NodeGroup> node_;
  std::shared_ptr<Wire> wire_;  // ends before the node's group
};

/// Where rank `rank` is when `nodes` are the numbers of all ranks' nodes, rising, with or without gaps. Pure.
Topology topology_of(const std::vector<int>& nodes, int rank);

/// Makes the group of ranks on these nodes for one of them, of its node's ranks and of the wire between all.
using MakeGroup = std::function<std::shared_ptr<Group>(std::vector<int> nodes, int rank, std::shared_ptr<Wire> wire,
                                                       std::shared_ptr<NodeGroup> node)>;

/// A NetworkGroup.
std::shared_ptr<Group> flat_group(std::vector<int> nodes, int rank, std::shared_ptr<Wire> wire,
                                  std::shared_ptr<NodeGroup> node);

/// new_group() of `whole`, whose ranks are on `nodes` and, those of this node, in `node`. `make` makes what is on
/// several nodes.
std::shared_ptr<Group> part_over_nodes(Group& whole, const std::vector<int>& nodes, NodeGroup& node,
                                       const std::vector<int>& ranks, const MakeGroup& make);

/// Joins the ranks of all nodes where `place` says (tcp_mesh.h), when those of this node have met in `node`. Where that
/// is a part of another group, so is what comes of it: the names of `place` are the numbers in the other one.
/// `streams` makes of their mesh what carries the payload, TCP unless something else is given, and `make` the group.
struct MeshPlace;
using MakeStreams = std::function<std::unique_ptr<Streams>(Mesh&)>;
std::shared_ptr<Group> join_network(const MeshPlace& place, std::shared_ptr<NodeGroup> node,
                                    const MakeStreams& streams = tcp_streams, const MakeGroup& make = flat_group);

}  // namespace lockstep::comm
