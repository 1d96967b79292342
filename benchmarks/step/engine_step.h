#pragma once

// Lockstep as a user has it: parallel::Engine with a fused optimizer, timed from
// optimizer.step() to its return. The gradients come through autograd and the engine's hooks,
// before the clock starts.

#include <functional>
#include <memory>

#include "benchmarks/step/contender.h"
#include "benchmarks/step/optimizer_kind.h"
#include "benchmarks/support/pages.h"
#include "benchmarks/support/shapes.h"
#include "lockstep/comm/group.h"

namespace lockstep::bench {

/// An optimizer with its options, and what a step of it must move for each weight.
struct EngineOptimizer {
  std::function<std::unique_ptr<optim::Optimizer>(optim::Target& target)> make;
  double bytes_per_weight = 0;
};
EngineOptimizer engine_optimizer(OptimizerKind kind, int shards);

/// Collective.
std::unique_ptr<Contender> make_engine_step(const std::shared_ptr<comm::Group>& group, const Shapes& shapes,
                                            const EngineOptimizer& optimizer, Pages pages);

}  // namespace lockstep::bench
