#pragma once

// What a C++ program does without Lockstep: Gloo all-reduce of the gradients, then libtorch's
// optimizer, on each rank alone.
//
// As PyTorch's DistributedDataParallel does it: gradients are views of flat buckets (25 MiB, the
// first one 1 MiB), all buckets are reduced at once in Gloo's background threads, the mean is
// formed by a division before the sum. Here the whole all-reduce is timed; during training a part
// of it can hide behind backward (on machines with cores to spare).

#include <memory>
#include <vector>

#include "benchmarks/step/contender.h"
#include "benchmarks/step/optimizer_kind.h"
#include "benchmarks/support/shapes.h"

namespace lockstep::bench {

struct GlooPlace {
  int rank = 0;
  int ranks = 1;
  std::string store_file;  ///< fresh, the same on all ranks
};

/// torch::optim's default implementation and at::_fused_*_, each with 1 to `threads` computing
/// threads, and the fused one with all its memory in huge pages. Collective.
std::vector<std::unique_ptr<Contender>> make_gloo_peers(const GlooPlace& place, const Shapes& shapes,
                                                        OptimizerKind kind, int threads);

}  // namespace lockstep::bench
