#pragma once

// Which parameters travel together. Pure functions.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <vector>

#include "lockstep/parallel/options.h"

namespace lockstep::parallel {

/// The bytes that one bucket after the other holds, the last number for all further ones. UsageError naming the option
/// that is out of range, or given beside another one.
std::vector<std::size_t> bucket_capacities(const BucketOptions& options);

/// Which parameters travel together: indices, in the order in which the buckets are sent. Parameters are taken from the
/// last to the first (backward's usual order) until a bucket holds its capacity. `capacities`: one or more.
std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<std::size_t>& bytes,
                                                   const std::vector<std::size_t>& capacities);

/// The same buckets, each cut into one for each dtype in it.
std::vector<std::vector<std::size_t>> cut_by_dtype(const std::vector<std::vector<std::size_t>>& buckets,
                                                   const std::vector<at::ScalarType>& dtypes);

}  // namespace lockstep::parallel
