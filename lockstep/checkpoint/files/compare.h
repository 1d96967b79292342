#pragma once

// What differs between the weights of two files.

#include <string>
#include <vector>

#include "lockstep/checkpoint/files/weights_file.h"

namespace lockstep::checkpoint {

struct Comparison {
  std::vector<std::string> differences;  ///< a line each, in the order of names; empty: equal to the bit
  std::size_t compared = 0;              ///< tensors that both have in the same dtype and shape
};

/// Names, dtypes and shapes; no tensor is read.
Comparison compare_headers(const WeightsFile& a, const WeightsFile& b);

/// These and the bits of each tensor that both have; for one that differs the largest absolute difference, "nan" where
/// it cannot be said. UsageError when a file has become shorter.
Comparison compare(const WeightsFile& a, const WeightsFile& b);

}  // namespace lockstep::checkpoint
