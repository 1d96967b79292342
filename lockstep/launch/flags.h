#pragma once

// The table of flags, and the reading of a command line by it. CLI11 is not used here: it has no
// notion of a program whose own flags follow ours.

#include <functional>
#include <string>
#include <vector>

#include "lockstep/launch/options.h"

namespace lockstep::launch {

struct Flag {
  std::vector<std::string> names;  ///< the last one names the environment variable
  std::string value;               ///< what the help calls its value; empty: a switch
  std::string help;
  std::function<void(Options&, const std::string& name, const std::string& value)> apply;
};

/// All flags of a dialect, in the order of the help.
std::vector<Flag> flags_of(Dialect dialect);

/// The names of a flag's values, checked: a whole number from `low` to `high`.
int number(const std::string& name, const std::string& text, int low, int high);

/// "SIGTERM,SIGUSR1" as numbers. Throws UsageError for an unknown one, or one that cannot be caught.
std::vector<int> parse_signals(const std::string& name, const std::string& text);

/// Exit codes "2,64-78,SIGSEGV" as numbers (128 + n for a signal). Throws UsageError.
std::vector<int> parse_codes(const std::string& name, const std::string& text);

}  // namespace lockstep::launch
