#include "lockstep/parallel/bucket_exchange.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>

namespace lockstep::parallel {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes

std::int64_t bytes_of(const std::vector<at::Tensor>& bucket) {
  std::int64_t bytes = 0;
  for (const at::Tensor& parameter : bucket) bytes += std::int64_t(parameter.nbytes());
  return bytes;
}

std::int64_t aligned_bytes(const std::vector<at::Tensor>& bucket) {
  return (bytes_of(bucket) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::vector<at::Tensor> memory_for(const Buckets& buckets, comm::Group& group) {
  std::int64_t bytes = 0;
  for (const auto& bucket : buckets) bytes += aligned_bytes(bucket);
  const at::Device device = buckets.empty() ? at::Device(at::kCPU) : buckets.front().front().device();
  const at::Tensor all = device.is_cpu() ? group.shared_empty({bytes}, at::kByte)
                                         : at::empty({bytes}, at::TensorOptions(at::kByte).device(device));
  std::vector<at::Tensor> memory;
  std::int64_t offset = 0;
  for (const auto& bucket : buckets) {
    memory.push_back(all.narrow(0, offset, bytes_of(bucket)).view(bucket.front().scalar_type()));
    offset += aligned_bytes(bucket);
  }
  return memory;
}

// A parameter whose elements leave gaps or overlap has its gradient contiguous.
Buckets places_in(const std::vector<at::Tensor>& memory, const Buckets& buckets) {
  Buckets places;
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    places.emplace_back();
    std::int64_t offset = 0;
    for (const at::Tensor& parameter : buckets[bucket]) {
      const at::Tensor flat = memory[bucket].narrow(0, offset, parameter.numel());
      offset += parameter.numel();
      const at::Tensor view = parameter.is_non_overlapping_and_dense()
                                  ? flat.as_strided(parameter.sizes(), parameter.strides())
                                  : flat.view(parameter.sizes());
      places.back().push_back(view.variable_data());  // to autograd no view: an optimizer's zero_grad() detaches it
    }
  }
  return places;
}

void MeanExchange::send(std::size_t bucket, double correction) {
  const torch::NoGradGuard no_grad;
  const std::vector<at::Tensor>& parameters = buckets_[bucket];
  const at::ScalarType dtype = parameters.front().grad().scalar_type();
  if (!together_.defined()) {
    std::int64_t largest = 0;
    for (const auto& one : buckets_) largest = std::max(largest, bytes_of(one));
    together_ = group_->shared_empty({largest}, at::kByte);
  }
  const at::Tensor together = together_.narrow(0, 0, bytes_of(parameters)).view(dtype);
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

void ViewExchange::take_memory() {
  memory_ = memory_for(buckets_, *group_);
  views_ = places_in(memory_, buckets_);
}

void ViewExchange::send(std::size_t bucket, double correction) {
  const torch::NoGradGuard no_grad;
  if (memory_.empty()) take_memory();
  for (std::size_t i = 0; i < buckets_[bucket].size(); ++i) {
    const at::Tensor& view = views_[bucket][i];
    at::Tensor& grad = buckets_[bucket][i].mutable_grad();
    if (grad.is_same(view)) continue;
    view.copy_(grad);
    grad = view;
  }
  group_->all_reduce(memory_[bucket], comm::ReduceOp::mean);
  if (correction != 1) memory_[bucket].mul_(correction);
}

}  // namespace lockstep::parallel
