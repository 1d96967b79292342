#pragma once

// The group of ranks on several nodes, some of which have several: each collective goes in two levels. What ranks of a
// node have in common they make in shared memory, and of that, not of each rank's, the nodes send each other messages;
// each rank sends for its share. docs/design/comm.md, "Several nodes".

#include <memory>
#include <vector>

#include "lockstep/comm/network/level_plan.h"
#include "lockstep/comm/network/network_group.h"
#include "lockstep/comm/network/node_level.h"
#include "lockstep/comm/wrapped_group.h"

namespace lockstep::comm {

class RunValues;
class SubtreeSums;

/// The bits, errors and deadlines are those of NetworkGroup. Each call begins with a meeting of the node's ranks, where
/// those are told that call something else.
///
/// Flat stays what two levels gain nothing for: messages between ranks (carry()) go by the wire on a node, too, and of
/// all_to_all each rank sends what is for other nodes itself; what stays on the node goes through its memory.
class HierarchicalGroup final : public WrappedGroup {
 public:
  /// `nodes`: the number of each rank's, rising, two or more. `node`: the group of this node's ranks.
  HierarchicalGroup(std::vector<int> nodes, int rank, std::shared_ptr<Wire> wire, std::shared_ptr<NodeGroup> node);

  void all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  void broadcast(const at::Tensor& tensor, int root) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) override;
  void all_to_all(const at::Tensor& output, const at::Tensor& input) override;
  void barrier() override;
  std::shared_ptr<Group> new_group(const std::vector<int>& ranks) override;

 private:
  template <class Body>
  void run(Body&& body);
  template <class Phase>
  void begin(Phase&& phase);
  int own_node() const { return topology().node; }
  int first_here() const { return levels_.first(own_node()); }

  void reduce_few(const CollectiveNote& note, const SubtreeSums& sums, const RunValues& own, const Shares& shares,
                  std::byte* data);
  void reduce_parts(const CollectiveNote& note, const SubtreeSums& sums, const RunValues& own, const Shares& shares,
                    std::byte* data);
  void send_from(int node, const CollectiveNote& note, std::byte* data, const Shares& shares);
  void gather(const std::vector<at::Tensor>& outputs, const at::Tensor& dense);

  const std::vector<int> nodes_;
  const std::shared_ptr<NodeGroup> node_;
  const Levels levels_;
  NodeLevel here_;
};

/// A HierarchicalGroup where there are several nodes and one of them has several ranks; else a NetworkGroup.
std::shared_ptr<Group> hierarchical_group(std::vector<int> nodes, int rank, std::shared_ptr<Wire> wire,
                                          std::shared_ptr<NodeGroup> node);

}  // namespace lockstep::comm
