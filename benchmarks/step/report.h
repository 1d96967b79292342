#pragma once

// The report of the reduce + update benchmark: Markdown for people, JSON for programs. Pure
// functions of the measured times.

#include <string>
#include <vector>

#include "benchmarks/step/measure.h"
#include "benchmarks/support/machine.h"

namespace lockstep::bench {

struct Section {
  std::string optimizer;
  std::vector<Timings> timings;
  std::string model;         ///< whose parameters' shapes
  std::int64_t weights = 0;  ///< of it
};

struct Report {
  Machine machine;
  std::string commit;
  std::string command;
  std::string instruction_set;
  int ranks = 0;
  Rounds rounds;
  std::vector<Section> sections;
};

/// What the targets are about. "Best" is by median over the contenders of that kind.
struct Verdict {
  double step = 0;            ///< seconds, median: ours with the best pages
  double step_rate = 0;       ///< bytes/s by state bytes
  double copy_rate = 0;       ///< bytes/s of the best copy
  double over_installed = 0;  ///< best peer as installed over step
  double over_peer = 0;       ///< best of all peers over step
};
Verdict verdict_of(const Section& section);

std::string to_markdown(const Report& report);
std::string to_json(const Report& report);

/// A section as the measuring process sends it to the one that writes the report.
std::string serialize(const Section& section);
Section deserialize(const std::string& text);

}  // namespace lockstep::bench
