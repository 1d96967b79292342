#pragma once

// The mean of the weights of several files.

#include <vector>

#include "lockstep/checkpoint/files/weights_file.h"
#include "lockstep/checkpoint/files/write_weights.h"

namespace lockstep::checkpoint {

/// Each number with a fraction is the mean over all files, summed in float64 in their order and rounded once; integers
/// and truth values, as BatchNorm's count of batches, are those of the last file. `files` must outlive the result,
/// which reads them when it is written. UsageError listing the differences in names, dtypes and shapes when there are
/// any, and for float8.
TensorSources average_of(const std::vector<WeightsFile>& files);

}  // namespace lockstep::checkpoint
