#pragma once

// What `lockstep bench input` prints.

#include <string>
#include <vector>

#include "benchmarks/input/our_turn.h"

namespace lockstep::bench {

/// Samples per second of one contender, turn by turn.
struct Rates {
  std::string name;
  std::vector<double> rates;
};

struct InputReport {
  InputCase input;
  InputOptions options;
  std::string peer;               ///< versions; empty: none measured
  std::vector<Rates> contenders;  ///< ours first
  double waiting = 0;             ///< the part of our turns that the consumer waited
  SampleTime split;
};

/// Our median over that of the fastest contender whose name begins so; 0 when there is none.
double times_as_fast(const InputReport& report, const std::string& begin);

std::string to_text(const InputReport& report);
std::string to_json(const InputReport& report);

}  // namespace lockstep::bench
