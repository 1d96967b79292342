#include "lockstep/train/options_optimizers.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::train {
namespace {

template <class T>
std::unique_ptr<optim::Optimizer> make_with(const T& options, const std::vector<WeightDecay>& decays,
                                            optim::Target& target) {
  if (decays.empty()) return std::make_unique<optim::FusedOptimizer<T>>(target, options);
  std::vector<optim::ParamGroup<T>> groups;
  std::size_t named = 0;
  for (const WeightDecay& own : decays) {
    T of_group;
    of_group.weight_decay = own.decay;
    groups.push_back({optim::Params(own.names), of_group});
    named += own.names.size();
  }
  if (named < target.parameters().size()) groups.push_back({optim::Params("*")});
  return std::make_unique<optim::FusedOptimizer<T>>(target, groups, options);
}

template <class T>
std::unique_ptr<optim::Optimizer> make(const Options& given, const std::vector<WeightDecay>& decays,
                                       optim::Target& target) {
  T options;
  options.lr = given.lr;
  options.weight_decay = given.weight_decay;
  if constexpr (requires { options.momentum; }) options.momentum = given.momentum;
  // Who asks for LARS by name and gives no weight decay does not ask for SGD.
  if constexpr (requires { options.always_adapt; }) options.always_adapt = true;
  return make_with(options, decays, target);
}

std::unique_ptr<optim::Optimizer> make_nesterov(const Options& given, const std::vector<WeightDecay>& decays,
                                                optim::Target& target) {
  return make_with(
      optim::SGDOptions{
          .lr = given.lr, .momentum = given.momentum, .weight_decay = given.weight_decay, .nesterov = true},
      decays, target);
}

// With the alpha and eps that torchvision's trainer has under this name.
std::unique_ptr<optim::Optimizer> make_rmsprop(const Options& given, const std::vector<WeightDecay>& decays,
                                               optim::Target& target) {
  return make_with(
      optim::RMSpropOptions{
          .lr = given.lr, .alpha = 0.9, .eps = 0.0316, .weight_decay = given.weight_decay, .momentum = given.momentum},
      decays, target);
}

}  // namespace

const std::vector<OptimizerRow>& optimizers() {
  static const std::vector<OptimizerRow> rows = {
      {.name = "sgd", .make = make<optim::SGDOptions>, .takes_momentum = true},
      {.name = "sgd_nesterov", .make = make_nesterov, .takes_momentum = true, .momentum = 0.9},
      {.name = "adam", .make = make<optim::AdamOptions>},
      {.name = "adamw", .make = make<optim::AdamWOptions>},
      {.name = "adadelta", .make = make<optim::AdadeltaOptions>},
      {.name = "adagrad", .make = make<optim::AdagradOptions>},
      {.name = "lamb", .make = make<optim::LAMBOptions>},
      {.name = "lars", .make = make<optim::LARSOptions>, .takes_momentum = true},
      {.name = "lion", .make = make<optim::LionOptions>},
      {.name = "nadam", .make = make<optim::NAdamOptions>},
      {.name = "radam", .make = make<optim::RAdamOptions>},
      {.name = "rmsprop", .make = make_rmsprop, .takes_momentum = true}};
  return rows;
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const OptimizerRow& row : optimizers()) all.push_back(row.name);
    return all;
  }();
  return names;
}

const OptimizerRow& optimizer_named(const std::string& name) {
  for (const OptimizerRow& row : optimizers())
    if (row.name == name) return row;
  throw UsageError(base::unknown_name("optimizer", name, optimizer_names()));
}

}  // namespace lockstep::train
