#pragma once

// Where the value of a flag comes from, and what follows from it.

#include <string>

#include "lockstep/flags/parse.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// Whether the flag is one of the program's, and was given.
bool given(const flags::Parsed& parsed, const std::string& flag);
/// Whether a recipe or a record gave it, and nothing stronger.
bool only_by_file(const flags::Parsed& parsed, const std::string& flag);

/// What a recipe or record gives, and a flag of the command line or the environment leaves without meaning, falls back
/// to its default: in `options` and, as not given, in `parsed`.
void take_back(Options& options, flags::Parsed& parsed);

}  // namespace lockstep::train
