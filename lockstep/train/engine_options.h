#pragma once

// What a run's options mean to the engine.

#include "lockstep/parallel/options.h"
#include "lockstep/train/observer.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

parallel::DataParallelOptions engine_options(const Options& options, const RunSize& run);

}  // namespace lockstep::train
