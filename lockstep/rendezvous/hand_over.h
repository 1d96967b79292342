#pragma once

// Who hosts a job when its hosting agent is lost, and when an agent that hosts must give up, because the others may go
// on without it: pure. No clock, no socket (docs/design/rendezvous.md).
//
// An agent that is not heard may be dead, or cut off together with some of the nodes. So the others go on only where
// they are a strict majority of the last membership that they know of, and a hosting agent gives up as soon as a strict
// majority may have gone: of two halves at most one runs.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/rendezvous/membership.h"

namespace lockstep::rendezvous {

/// So many of a generation's nodes can take over, those of the lowest ranks; when all of these are lost at once the job
/// ends.
inline constexpr int kMostHeirs = 16;

/// Who was in a generation, as one of its nodes has been told.
struct Membership {
  std::int64_t generation = 0;
  int nodes = 1;
  int rank = 0;                    ///< of this node
  std::vector<std::string> heirs;  ///< where the nodes of rank 1, 2, ... would host; "": it cannot. Empty: nobody does
};

enum class Turn {
  end,     ///< all have had theirs
  host,    ///< it is this node's
  follow,  ///< another's, which is to be called
};

struct Heir {
  Turn turn = Turn::end;
  int rank = 0;
  Time until = Time::max();  ///< then it is another's; with host there is no other
};

/// Whose turn it is so long after the hosting agent was lost: the nodes of the lowest ranks first, each for `patience`.
Heir heir_at(const Membership& last, Time since, Time patience);

/// What a hosting agent knows of the agents that might go on without it: those whose last membership is one in which
/// they were, and who have not said that they end. Times are of one clock, the hosting agent's own.
class Majority {
 public:
  /// A generation starts, of these agents by rank, the hosting one first. `heirs`: it has such who can go on alone.
  void begin(std::int64_t generation, const std::vector<std::uint64_t>& ids, bool heirs, Time now);
  /// This agent hosts in the place of one that was lost: the other nodes have not come yet.
  void inherit(const Membership& last);
  /// One of them has; false: its rank is none of theirs, or is here already. It counts when it proves that it lives.
  bool joins(std::uint64_t id, int rank);
  /// It has answered what was sent at `then`, and knows that this generation is the last.
  void proves(std::uint64_t id, std::int64_t generation, Time then);
  /// It ends, and goes on with nobody.
  void resigns(std::uint64_t id);
  /// The connection to it is lost.
  void goes(std::uint64_t id);

  /// In words, when enough have gone to go on without this agent; else empty.
  std::string gone() const;
  /// Until when too few may have gone for that, where one may have gone `limit` after it was proven to be here.
  Time until(Time limit) const;
  /// Of the inherited membership: who is here, this agent too; how many make a strict majority; how many there were.
  /// 0 of 0 of 0: none is inherited.
  int votes() const;
  int votes_needed() const;
  int nodes_inherited() const { return nodes_inherited_; }

 private:
  struct Voter {
    int rank = 0;
    std::uint64_t id = 0;
    bool here = false;  // else the id has no meaning
    Time proven{0};
  };
  struct Record {
    int nodes = 1;
    std::vector<Voter> voters;  // without the hosting agent, and without those who know of a later generation
    int needed() const { return nodes / 2 + 1; }
  };

  void forget(std::int64_t before, std::uint64_t id);

  std::map<std::int64_t, Record> records_;  // by generation; those whose voters are enough
  std::int64_t inherited_ = 0;
  int nodes_inherited_ = 0;
  bool gathers_ = false;  // those of the inherited membership, who have not come yet
};

}  // namespace lockstep::rendezvous
