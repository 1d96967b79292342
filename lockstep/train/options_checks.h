#pragma once

// What the flags of `lockstep train` mean together.

#include "lockstep/flags/parse.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// Fills in what follows from other flags (momentum, transforms). UsageError for flags that contradict each other or
/// that lack another one; NoMeaning (options_sources.h) for one that would have no effect: asked for and without effect
/// would be a silent loss. `parsed` tells which flags were given.
void settle(Options& options, const flags::Parsed& parsed);

}  // namespace lockstep::train
