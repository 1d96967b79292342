#include "lockstep/parallel/torch_rates.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/optim/param_groups.h"
#include "lockstep/optim/rules/option.h"

namespace lockstep::parallel {
namespace {

// Returns whether the optimizer has one.
bool set_momentum(torch::optim::OptimizerOptions& options, double momentum) {
  if (auto* const sgd = dynamic_cast<torch::optim::SGDOptions*>(&options))
    sgd->momentum(momentum);
  else if (auto* const rmsprop = dynamic_cast<torch::optim::RMSpropOptions*>(&options))
    rmsprop->momentum(momentum);
  else if (auto* const adam = dynamic_cast<torch::optim::AdamOptions*>(&options))
    adam->betas({momentum, std::get<1>(adam->betas())});
  else if (auto* const adamw = dynamic_cast<torch::optim::AdamWOptions*>(&options))
    adamw->betas({momentum, std::get<1>(adamw->betas())});
  else
    return false;
  return true;
}

}  // namespace

TorchRates::TorchRates(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {
  for (const torch::optim::OptimizerParamGroup& group : optimizer_.param_groups())
    initial_.push_back(group.options().get_lr());
}

void TorchRates::set_lr(const optim::Schedule& schedule, std::uint64_t t) {
  set([&](std::size_t) -> const optim::Schedule& { return schedule; }, t);
}

void TorchRates::set_lr(std::span<const optim::Schedule> of_groups, std::uint64_t t) {
  if (of_groups.size() != initial_.size()) optim::refuse_schedules(of_groups.size(), initial_.size());
  set([&](std::size_t group) -> const optim::Schedule& { return of_groups[group]; }, t);
}

void TorchRates::set(const std::function<const optim::Schedule&(std::size_t group)>& schedule_of, std::uint64_t t) {
  std::vector<torch::optim::OptimizerParamGroup>& groups = optimizer_.param_groups();
  if (groups.size() != initial_.size())
    throw UsageError("TorchRates: the optimizer has " + std::to_string(groups.size()) + " groups, and had " +
                     std::to_string(initial_.size()) + "; make another one when groups are added");
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> changed;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const optim::Rate rate = schedule_of(i).at(initial_[i], t);
    optim::require_not_negative("lr", rate.lr);
    torch::optim::OptimizerOptions& options = *changed.emplace_back(groups[i].options().clone());
    options.set_lr(rate.lr);
    if (rate.momentum && !set_momentum(options, *rate.momentum)) optim::refuse_momentum();
  }
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].set_options(std::move(changed[i]));
}

}  // namespace lockstep::parallel
