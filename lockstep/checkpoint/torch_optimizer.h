#pragma once

// The state of an optimizer of torch::optim, as tensors under Python's names.

#include <string>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/optim/optimizer.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep::checkpoint {

/// "torch::optim::Adam". UsageError for one that has a state of another kind (LBFGS).
std::string kind_of(const torch::optim::Optimizer& optimizer);

/// By parameter and entry: "fc.weight/exp_avg", "fc.weight/step". Parameters that had no step have none. The tensors
/// are the optimizer's own.
TensorMap state_of(const torch::optim::Optimizer& optimizer, const std::vector<optim::Parameter>& parameters);

/// Gives the optimizer that state, in memory of its own, each entry where its parameter is. UsageError naming what is
/// of no parameter, or of another shape, or no state of such an optimizer; then nothing is changed. `source`: where the
/// tensors are from.
void set_state(torch::optim::Optimizer& optimizer, const std::vector<optim::Parameter>& parameters,
               const TensorMap& tensors, const std::string& source);

}  // namespace lockstep::checkpoint
