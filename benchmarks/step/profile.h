#pragma once

// Where the time of a training step goes, and how long its arithmetic alone takes.

#include <map>
#include <string>
#include <vector>

#include "benchmarks/step/step_trainer.h"

namespace lockstep::bench {

/// Seconds of a step on this rank; `parts` add up to `step`.
struct StepProfile {
  double step = 0;
  /// Operators by kind ("convolution", "batch norm", …), "waiting" for the other ranks, "update", and
  /// "framework": what is left.
  std::vector<std::pair<std::string, double>> parts;
  /// The operators that take most, by name: at most a dozen.
  std::vector<std::pair<std::string, double>> operators;
};

/// A mean over `steps` steps. Collective.
StepProfile profile_steps(StepTrainer& trainer, comm::Group& group, int steps);

/// The step's convolutions and matrix products, called alone on what they were called with in a step.
struct BareOperators {
  std::map<std::string, double> seconds;  ///< by operator, medians added up over a step
  double gflop = 0;                       ///< of a step on this rank
  double peak_gflops = 0;                 ///< of a matrix product of 1024 x 1024 by 1024 x 1024, a second
};

/// All ranks measure at once, for they share what a machine has. Collective.
BareOperators time_bare_operators(StepTrainer& trainer, comm::Group& group, bool bf16, int rounds);

/// Of an operator's name: "convolution", "pooling", "batch norm", "layer norm", "attention", "matrix products",
/// "activations", "loss", "copies and new memory", "framework" for autograd's own frames, "other operators".
std::string kind_of_operator(const std::string& name);

}  // namespace lockstep::bench
