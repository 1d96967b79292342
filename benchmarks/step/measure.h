#pragma once

// Runs contenders against each other and keeps every time.

#include <memory>
#include <string>
#include <vector>

#include "benchmarks/step/contender.h"
#include "lockstep/comm/group.h"

namespace lockstep::bench {

struct Timings {
  std::string name;
  std::string kind;
  std::string page_size;
  double bytes = 0;             ///< of one call, see Contender::bytes
  std::vector<double> seconds;  ///< one per round
};

struct Rounds {
  int warmup = 3;
  int measured = 30;
};

/// In every round each contender has one turn; the order rotates from round to round. A turn:
/// prepare, barrier, a rest, run; its time is from the first rank's start to the last rank's end.
/// Collective; all ranks return the same.
std::vector<Timings> measure(comm::Group& group, const std::vector<std::unique_ptr<Contender>>& contenders,
                             const Gradients& gradients, Rounds rounds);

}  // namespace lockstep::bench
