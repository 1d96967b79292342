#pragma once

// The optimizers of --opt, one row each.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/optim/optimizer.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// Parameters, by PyTorch's names, with a weight decay of their own.
struct WeightDecay {
  std::vector<std::string> names;
  double decay = 0;
};

struct OptimizerRow {
  std::string name;
  /// Makes it from lr, momentum and weight_decay of the options, but for the parameters that have a decay of their own,
  /// attached to the target (collective).
  std::unique_ptr<optim::Optimizer> (*make)(const Options& options, const std::vector<WeightDecay>& decays,
                                            optim::Target& target);
  bool takes_momentum = false;
  double momentum = 0;  ///< without --momentum
};

const std::vector<OptimizerRow>& optimizers();

/// UsageError for a name that none has.
const OptimizerRow& optimizer_named(const std::string& name);

}  // namespace lockstep::train
