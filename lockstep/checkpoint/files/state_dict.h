#pragma once

// Which part of what torch.save wrote is the weights; WeightsFile says the rules.

#include "lockstep/checkpoint/files/pt.h"
#include "lockstep/checkpoint/files/weights_file.h"

namespace lockstep::checkpoint {

/// UsageError when nothing in it is.
FoundWeights weights_in(const InputFile& file, const PtFile& saved);

}  // namespace lockstep::checkpoint
