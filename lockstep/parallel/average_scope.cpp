#include "lockstep/parallel/average_scope.h"

#include <ATen/core/grad_mode.h>

#include <exception>

namespace lockstep::parallel {

AverageScope::AverageScope(FusedState& fused) : fused_(fused) {
  const at::NoGradGuard no_grad;
  fused_.check_bound();
  const state::SharedState& state = fused_.state;
  const std::vector<at::Tensor> averages = fused_.averages();
  const std::vector<at::Tensor>& parameters = fused_.parameters->tensors();
  buffers_.resize(state.layout().module_buffer_bytes());
  fused_.buffers.store(buffers_.data());
  for (const at::Tensor& parameter : parameters) weights_.push_back(parameter.detach());
  for (std::size_t i = 0; i < parameters.size(); ++i)
    parameters[i].set_data(averages[i].to(parameters[i].options()));  // a copy's, rounded as the update rounds
  fused_.buffers.load(state.read(state.layout().average_buffers(int(state.committed().buffer))));
  fused_.shows_average = true;
}

AverageScope::~AverageScope() {
  for (std::size_t i = 0; i < weights_.size(); ++i) fused_.parameters->tensors()[i].set_data(weights_[i]);
  fused_.shows_average = false;
  try {
    fused_.buffers.load(buffers_.data());
  } catch (const std::exception&) {  // a device has failed, which whoever waits for it is told
  }
}

}  // namespace lockstep::parallel
