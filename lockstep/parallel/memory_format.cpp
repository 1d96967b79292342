#include "lockstep/parallel/memory_format.h"

namespace lockstep::parallel {

at::Tensor channels_last(const at::Tensor& tensor) {
  if (tensor.dim() != 4) return tensor;
  if (tensor.size(1) == 1 && tensor.is_contiguous()) {
    const std::int64_t row = tensor.size(3);
    return tensor.as_strided(tensor.sizes(), {tensor.size(2) * row, 1, row, 1});
  }
  return tensor.contiguous(at::MemoryFormat::ChannelsLast);
}

void make_channels_last(const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters())
    if (parameter.defined() && parameter.dim() == 4)
      parameter.set_data(parameter.detach().to(parameter.options(), /*non_blocking=*/false, /*copy=*/true,
                                               at::MemoryFormat::ChannelsLast));
}

}  // namespace lockstep::parallel
