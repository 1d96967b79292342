#include "lockstep/parallel/exponential_moving_average.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

ExponentialMovingAverage::ExponentialMovingAverage(const torch::nn::Module& module, EmaOptions options)
    : options_(options) {
  check(options_);
  for (const auto& item : module.named_parameters()) add(item.key(), item.value(), /*is_buffer=*/false);
  for (const auto& item : module.named_buffers()) add(item.key(), item.value(), /*is_buffer=*/true);
}

void ExponentialMovingAverage::add(const std::string& name, const at::Tensor& own, bool is_buffer) {
  if (!own.defined()) return;  // an option switched off, as BatchNorm's statistics
  const at::NoGradGuard no_grad;
  const auto known =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const Averaged& one) { return one.own.is_same(own); });
  names_.emplace_back(name, std::size_t(known - tensors_.begin()));
  if (known == tensors_.end()) tensors_.push_back({own, own.detach().clone(), is_buffer, false});
}

// The operations of torchvision's, so that the numbers are its to the bit, and those of the update of ours.
void ExponentialMovingAverage::update_parameters() {
  if (shown_) throw UsageError("ema: update_parameters() while the module shows its averaged weights");
  const at::NoGradGuard no_grad;
  const optim::Averaging now = averaging_at(options_, ++updates_);
  for (auto& [own, average, is_buffer, is_trained] : tensors_) {
    is_trained = is_trained || own.requires_grad();  // one that is frozen for a while, as in a GAN, is averaged on
    const bool is_own = is_buffer ? !options_.use_buffers : !is_trained;
    if (is_own || now == optim::Averaging::copy)
      average.copy_(own);
    else if (now == optim::Averaging::mean)
      average.copy_(average * options_.decay + own * (1 - options_.decay));
  }
}

std::map<std::string, at::Tensor> ExponentialMovingAverage::state_dict() const {
  std::map<std::string, at::Tensor> averages;
  for (const auto& [name, index] : names_) averages.emplace(name, tensors_[index].average);
  return averages;
}

void ExponentialMovingAverage::load_state_dict(const std::map<std::string, at::Tensor>& averages,
                                               std::uint64_t updates) {
  for (const auto& [name, index] : names_) {
    const auto given = averages.find(name);
    if (given == averages.end() || given->second.sizes() != tensors_[index].average.sizes())
      throw UsageError("ema: load_state_dict() has " +
                       std::string(given == averages.end() ? "no" : "another shape of") + " '" + name + "'");
  }
  const at::NoGradGuard no_grad;
  for (const auto& [name, index] : names_) tensors_[index].average.copy_(averages.at(name));
  updates_ = updates;
}

std::shared_ptr<void> ExponentialMovingAverage::use() {
  if (shown_) throw UsageError("ema: use() while the module shows its averaged weights already");
  std::vector<at::Tensor> weights;
  for (const Averaged& one : tensors_) weights.push_back(one.own.detach());
  for (const Averaged& one : tensors_) one.own.set_data(one.average.clone());
  shown_ = true;
  return {nullptr, [this, weights = std::move(weights)](void*) {
            for (std::size_t i = 0; i < weights.size(); ++i) tensors_[i].own.set_data(weights[i]);
            shown_ = false;
          }};
}

}  // namespace lockstep::parallel
