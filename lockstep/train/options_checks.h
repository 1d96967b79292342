#pragma once

// What the flags of `lockstep train` mean together.

#include "lockstep/flags/parse.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// What a file gives, and a stronger source leaves without meaning, falls back to its default (options_sources.h).
/// Fills in what follows from other flags (momentum, transforms). UsageError for flags that contradict each other, that
/// lack another one, or that would have no effect: asked for and without effect would be a silent loss. `parsed` tells
/// which flags were given.
void settle(Options& options, const flags::Parsed& parsed);

}  // namespace lockstep::train
