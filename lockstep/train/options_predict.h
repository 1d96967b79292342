#pragma once

// The flags of `lockstep predict`: those of `lockstep train` that say which model sees which pictures, and how; rows of
// the same table. Without libtorch, as options.h. Pure functions, thread-safe.

#include <string>

#include "lockstep/flags/table.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

struct PredictOptions {
  Options run;         ///< what only training reads is as by default
  std::string output;  ///< file to write, whose name ends in .csv
};

/// The table that reads and writes `options`, which outlives it.
flags::Table predict_table_of(PredictOptions& options);

/// Options, or a text that was asked for instead (--help, --version).
struct ParsedPredict {
  PredictOptions options;
  std::string text;  ///< not empty: print it to stdout and exit 0; `options` means nothing then
};

/// As parse_options(). Throws UsageError for the first thing that is wrong.
ParsedPredict parse_predict_options(int argc, const char* const* argv);

}  // namespace lockstep::train
