#pragma once

// The flags of checkpoints.

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/flags/table.h"

namespace lockstep::train {

/// From one checkpoint to the next.
struct SaveEvery {
  enum class Unit { never, steps, seconds, epochs };
  Unit unit = Unit::never;
  std::int64_t count = 1;  ///< >= 1
  bool operator==(const SaveEvery&) const = default;
};

struct CheckpointOptions {
  SaveEvery save_every;          ///< into checkpoints/ of the output directory, and at the end
  int hist = 10;                 ///< how many stay, >= 1; the best besides
  int best = 1;                  ///< how many of the best, >= 1
  std::string monitor = "top1";  ///< by what those are, one of monitor_names(); of a regression "loss" unless given
  std::string resume;            ///< "auto", "last", "best" or a path; empty: begin anew. Of test_only the path of what
                                 ///< is evaluated
  std::vector<int> stop_on{SIGTERM};  ///< signals at which a run that saves does that, and stops
};

/// Whether checkpoints are written: with --save-every, in an output directory.
bool saves(const CheckpointOptions& options, const std::string& output_dir);

/// Whether --resume names checkpoints of the output directory, whose run then is this one.
bool continues_its_directory(const CheckpointOptions& options);

/// What an evaluation finds; with ema_, of the average of the weights.
const std::vector<std::string>& monitor_names();

/// Whether the least of what --monitor names is the best.
bool smaller_is_better(const CheckpointOptions& options);

/// "100" steps, "30s" seconds, "2ep" epochs, "0" never.
flags::Value save_every(SaveEvery& place);

/// "SIGTERM,SIGUSR1".
flags::Value signals(std::vector<int>& place);

}  // namespace lockstep::train
