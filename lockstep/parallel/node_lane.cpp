#include "lockstep/parallel/node_lane.h"

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/member.h"
#include "lockstep/comm/call_log.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/comm/network/wire.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/comm/shm/in_collective.h"
#include "lockstep/comm/topology.h"

namespace lockstep::parallel {
namespace {

std::string text_of_wave(const void* number) { return "wave " + std::to_string(*static_cast<const int*>(number)); }

// While one lives, this rank's node knows that the rank may wait for those of others.
class WaitsAbroad {
 public:
  explicit WaitsAbroad(base::Member& member) : words_(member.words()) {
    words_.away.fetch_add(1, std::memory_order_relaxed);
  }
  ~WaitsAbroad() { words_.away.fetch_sub(1, std::memory_order_relaxed); }
  WaitsAbroad(const WaitsAbroad&) = delete;
  WaitsAbroad& operator=(const WaitsAbroad&) = delete;

 private:
  base::RankWords& words_;
};

}  // namespace

NodeLane::NodeLane(NodeExchange& exchange, comm::Group& group)
    : exchange_(exchange),
      outer_(group),
      lane_(comm::duplicate(group)),
      times_(std::size_t(exchange.exchanges())),
      thread_(lane_) {
  // The ranks' threads come when backward lets them: nothing to look for meanwhile.
  lane_->node().member.set_waiting({.look = std::chrono::microseconds(0), .yield = std::chrono::microseconds(0)});
}

// Before the thread is waited for, which would say that this rank was the first to fail.
NodeLane::~NodeLane() {
  if (std::uncaught_exceptions() == 0) return;
  try {
    lane_->node().member.check_abort_anywhere();
  } catch (const GroupAborted& aborted) {
    lane_->wire()->abort(aborted.failure());
  } catch (const std::exception&) {
    // a forked child, which is nobody
  }
}

// The marks count on over all rounds.
void NodeLane::seal(std::uint64_t step) {
  const int number = sealed();
  const base::Member& member = lane_->node().member;
  const base::Mark wanted =
      base::make_mark(member.generation(), round_ * std::uint64_t(exchange_.exchanges()) + std::uint64_t(number) + 1);
  base::advance(member.words().votes[0], wanted);
  base::wake_all(member.page());
  works_.push_back(thread_.run([this, wanted, number, step](comm::Group& lane) { carry(lane, wanted, number, step); }));
}

const std::vector<WaveTime>& NodeLane::finish(std::uint64_t step) {
  early_ = sealed();
  while (sealed() < exchange_.exchanges()) seal(step);
  say_step(step);
  const WaitsAbroad waits(outer_.node().member);
  for (const comm::Work& work : works_) work.wait();
  works_.clear();
  carried_ = 0;
  sent_bytes_ = lane_->wire()->bytes_sent();
  ++round_;
  return times_;
}

// To the ranks of other nodes, over the program's wire, while the thread carries what is left. Who is in another call
// there disagrees at once; over the lane's own wire it would be waited for until the timeout. A rank beside this one
// that is in a collective of two levels waits at the node's page first: it finds others at a barrier that it never
// comes to.
void NodeLane::say_step(std::uint64_t step) {
  const comm::Topology& place = outer_.topology();
  const int first = place.rank - place.local_rank, last = first + place.local_world;
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  for (int rank = 0; rank < place.world; ++rank) {
    if (first <= rank && rank < last) continue;
    out.push_back({.peer = rank, .bytes = {}});
    in.push_back({.peer = rank, .bytes = {}});
  }
  outer_.wire()->exchange(note_of_step(step, exchange_.exchanges()), out, in);
  outer_.node().member.barrier();
}

WaveData NodeLane::told() const {
  return {.count = int(waves().size()), .early = early_, .carried = carried_, .sent_bytes = sent_bytes_};
}

// By the thread: when all ranks of the node have sealed as much.
void NodeLane::carry(comm::Group& lane, base::Mark wanted, int number, std::uint64_t step) {
  base::Member& member = lane.node().member;
  const comm::Described described(member, {.text = text_of_wave, .of = &number});
  const auto missing = [&](int peer) {
    return !base::has_reached(member.page().ranks[peer].votes[0].load(std::memory_order_seq_cst), wanted);
  };
  comm::or_abort(lane, [&] {
    comm::logged(lane.call_log(), {.kind = "step", .detail_name = "wave", .detail = number}, [&] {
      member.meet(missing);
      WaveTime& time = times_[std::size_t(number)];
      time.begin = std::chrono::steady_clock::now();
      exchange_.carry(step, number, *lane.wire());
      time.end = std::chrono::steady_clock::now();
      ++carried_;
    });
  });
}

}  // namespace lockstep::parallel
