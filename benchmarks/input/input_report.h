#pragma once

// What `lockstep bench input` prints.

#include <string>
#include <vector>

#include "benchmarks/input/our_turn.h"

namespace lockstep::bench {

/// Samples per second of one contender, turn by turn.
struct Rates {
  std::string name;
  std::string kind;  ///< ours, installed, tuned or floor: benchmarks/support/rows.py
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

std::string to_text(const InputReport& report);
std::string to_json(const InputReport& report);

}  // namespace lockstep::bench
