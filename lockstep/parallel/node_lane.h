#pragma once

// The waves of a step on their way to other nodes: a thread per rank that makes the exchanges of NodeExchange one after
// another, over a group of its own. So the wire of the program's group stays the program's, and what fails here is a
// failure of that group.
//
// A wave goes out when all ranks of the node have it. Each rank says how many it has by a word of its own at the lane's
// control page, and tells its thread no sooner: no deadline runs while this rank computes, only while others of those
// that a wave needs are late behind it. On the program's wire a step has one exchange of nothing, and on the node one
// barrier, by which ranks that are in other calls are found. docs/design/nodes.md, "Waves".
//
// A process that was forked behind this has no such thread, and ends by _exit().

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/control_page.h"
#include "lockstep/comm/async.h"
#include "lockstep/comm/group.h"
#include "lockstep/parallel/logging_data.h"
#include "lockstep/parallel/node_exchange.h"
#include "lockstep/parallel/step_clock.h"

namespace lockstep::parallel {

/// Used by the thread that trains.
class NodeLane {
 public:
  /// Collective. Both must outlive this.
  NodeLane(NodeExchange& exchange, comm::Group& group);
  /// Whoever leaves because its group has failed says so: the others may wait for what it owes them.
  ~NodeLane();
  NodeLane(const NodeLane&) = delete;
  NodeLane& operator=(const NodeLane&) = delete;

  const std::vector<Wave>& waves() const { return exchange_.waves(); }

  /// How many waves of the step that goes on have been sealed.
  int sealed() const { return int(works_.size()); }
  /// This rank's shards have the next wave of `step`, and nobody writes its slots until the ranks of the node have met
  /// behind finish(). Waits for nobody.
  void seal(std::uint64_t step);

  /// The rest of the step is in its place, with uses and records. Returns when all exchanges of it are made, so when
  /// this rank's slice has the sums: the ranks of the node wait for each other behind it. When each was made, until the
  /// next round. Throws what an exchange does.
  const std::vector<WaveTime>& finish(std::uint64_t step);

  WaveData told() const;

 private:
  void say_step(std::uint64_t step);
  void carry(comm::Group& lane, base::Mark wanted, int number, std::uint64_t step);

  NodeExchange& exchange_;
  comm::Group& outer_;
  const std::shared_ptr<comm::Group> lane_;
  std::uint64_t round_ = 0;        ///< that were finished; a step that is refused is made again, and a round anew
  std::vector<comm::Work> works_;  ///< of this round, by exchange
  int early_ = 0;                  ///< sealed before finish() in the last round
  std::vector<WaveTime> times_;    ///< by exchange
  std::uint64_t sent_bytes_ = 0;
  std::atomic<int> carried_ = 0;   ///< exchanges of this round
  comm::AsyncCollectives thread_;  ///< ends before what it uses
};

}  // namespace lockstep::parallel
