#include "lockstep/parallel/bucket_exchange.h"

#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>

namespace lockstep::parallel {

void MeanExchange::send(std::size_t bucket, double correction) {
  const torch::NoGradGuard no_grad;
  const std::vector<at::Tensor>& parameters = buckets_[bucket];
  const at::ScalarType dtype = parameters.front().grad().scalar_type();
  const auto bytes_of = [](const std::vector<at::Tensor>& some) {
    std::size_t bytes = 0;
    for (const at::Tensor& parameter : some) bytes += parameter.nbytes();
    return bytes;
  };
  if (!together_.defined()) {
    std::size_t largest = 0;
    for (const auto& one : buckets_) largest = std::max(largest, bytes_of(one));
    together_ = group_->shared_empty({std::int64_t(largest)}, at::kByte);
  }
  const at::Tensor together = together_.narrow(0, 0, std::int64_t(bytes_of(parameters))).view(dtype);
  const auto each = [&](auto&& body) {
    std::int64_t offset = 0;
    for (const at::Tensor& parameter : parameters) {
      const at::Tensor& grad = parameter.grad();
      body(grad, together.narrow(0, offset, grad.numel()).view(grad.sizes()));
      offset += grad.numel();
    }
  };
  each([](const at::Tensor& grad, const at::Tensor& place) { place.copy_(grad); });
  group_->all_reduce(together, comm::ReduceOp::mean);
  if (correction != 1) together.mul_(correction);
  each([](const at::Tensor& grad, const at::Tensor& place) { grad.copy_(place); });
}

}  // namespace lockstep::parallel
