#pragma once

// The flags of `lockstep run` and `lockstep launch`, a row each, and how their values are read.

#include <string>
#include <vector>

#include "lockstep/flags/table.h"
#include "lockstep/launch/flags/options.h"

namespace lockstep::launch {

/// The table of a dialect, which reads `options`.
flags::Table table_of(Dialect dialect, Options& options);

/// A whole number from `low` to `high`. UsageError that begins with `name`, as those below.
int number(const std::string& name, const std::string& text, int low, int high);

/// "SIGTERM,SIGUSR1" as numbers. Throws UsageError for an unknown one, or one that cannot be caught.
std::vector<int> parse_signals(const std::string& name, const std::string& text);

/// Exit codes "2,64-78,SIGSEGV" as numbers (128 + n for a signal). Throws UsageError.
std::vector<int> parse_codes(const std::string& name, const std::string& text);

}  // namespace lockstep::launch
