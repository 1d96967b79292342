#pragma once

// The waves of a step on their way to other nodes: a thread per rank that makes the exchanges of NodeExchange one after
// another, over a group of its own. So the wire of the program's group stays the program's, and what fails here is a
// failure of that group.
//
// A wave goes out when all ranks of the node have it. Each rank says how many it has by a word of its own at the lane's
// control page, and tells its thread no sooner: no deadline runs while this rank computes, only while others of those
// that a wave needs are late behind it. docs/design/nodes.md, "Waves".
//
// A process that was forked behind this has no such thread, and ends by _exit().

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/control_page.h"
#include "lockstep/comm/async.h"
#include "lockstep/comm/group.h"
#include "lockstep/parallel/node_exchange.h"

namespace lockstep::parallel {

class NodeLane {
 public:
  /// Collective. Both must outlive this.
  NodeLane(NodeExchange& exchange, comm::Group& group);
  /// Whoever leaves because its group has failed says so: the others may wait for what it owes them.
  ~NodeLane();
  NodeLane(const NodeLane&) = delete;
  NodeLane& operator=(const NodeLane&) = delete;

  /// This rank's gradients, uses and records of `step` are in their places. Returns when all exchanges of it are made,
  /// so when its slice has the sums: the ranks of the node wait for each other behind it. What an exchange throws.
  void finish(std::uint64_t step);

 private:
  void seal(std::uint64_t step);
  void carry(comm::Group& lane, base::Mark wanted, int number, std::uint64_t step);

  NodeExchange& exchange_;
  comm::Group& outer_;
  const std::shared_ptr<comm::Group> lane_;
  std::uint64_t round_ = 0;        ///< that were finished; a step that is refused is made again, and a round anew
  std::vector<comm::Work> works_;  ///< of this round, by exchange
  comm::AsyncCollectives thread_;  ///< ends before what it uses
};

}  // namespace lockstep::parallel
