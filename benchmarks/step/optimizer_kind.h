#pragma once

// The two optimizers that are measured, with the options all contenders use.

#include <string>

#include "lockstep/optim/optimizer.h"

namespace lockstep::bench {

enum class OptimizerKind { sgd, adam };

inline constexpr optim::SGDOptions kSGD{.lr = 1e-4, .momentum = 0.9};
inline constexpr optim::AdamOptions kAdam{.lr = 1e-4};

inline const char* to_string(OptimizerKind kind) { return kind == OptimizerKind::sgd ? "SGD momentum" : "Adam"; }
inline int state_arrays(OptimizerKind kind) {
  return kind == OptimizerKind::sgd ? optim::rule_for(kSGD, 1).arrays() : optim::rule_for(kAdam, 1).arrays();
}
inline optim::Rule rule_for(OptimizerKind kind, std::uint64_t step) {
  if (kind == OptimizerKind::sgd) return optim::rule_for(kSGD, step);
  return optim::rule_for(kAdam, step);
}

/// What a step of the node must move for each weight: every slot read, weights and optimizer
/// state read and written.
inline double bytes_per_weight(OptimizerKind kind, int shards) {
  return sizeof(float) * (shards + 2.0 * (1 + state_arrays(kind)));
}

}  // namespace lockstep::bench
