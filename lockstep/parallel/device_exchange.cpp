#include "lockstep/parallel/device_exchange.h"

#include <ATen/ops/_foreach_copy.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <utility>

#include "lockstep/comm/device_streams.h"

namespace lockstep::parallel {

DeviceExchange::DeviceExchange(Buckets buckets, std::shared_ptr<comm::Group> group, bool as_views)
    : buckets_(std::move(buckets)),
      group_(std::move(group)),
      as_views_(as_views),
      stream_(comm::side_stream(buckets_.front().front().device())) {}

// Its stream's work may still be under way when this object goes: the allocator is told of it.
void DeviceExchange::take_memory() {
  memory_ = memory_for(buckets_, *group_);
  places_ = places_in(memory_, buckets_);
  c10::impl::VirtualGuardImpl(stream_.device_type())
      .recordDataPtrOnStream(memory_.front().storage().data_ptr(), stream_);
}

std::vector<at::Tensor> DeviceExchange::gradients_of(std::size_t bucket) const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : buckets_[bucket]) gradients.push_back(parameter.grad());
  return gradients;
}

// The gradients are touched in the current stream alone, which has them, and is behind the exchange at the end.
void DeviceExchange::send(std::size_t bucket, double correction) {
  const torch::NoGradGuard no_grad;
  const c10::Device device = stream_.device();
  if (memory_.empty()) take_memory();
  if (as_views_) {
    for (std::size_t i = 0; i < buckets_[bucket].size(); ++i) {
      at::Tensor& gradient = buckets_[bucket][i].mutable_grad();
      if (gradient.is_same(places_[bucket][i])) continue;
      places_[bucket][i].copy_(gradient);
      gradient = places_[bucket][i];
    }
  } else {
    at::_foreach_copy_(places_[bucket], gradients_of(bucket));
  }
  comm::follow(stream_, comm::current_stream(device));
  sent_.push_back(bucket);
  const c10::StreamGuard aside(stream_);
  group_->all_reduce(memory_[bucket], comm::ReduceOp::mean);
  if (correction != 1) memory_[bucket].mul_(correction);
}

bool DeviceExchange::finish() {
  const torch::NoGradGuard no_grad;
  const std::vector<std::size_t> sent = std::exchange(sent_, {});
  if (sent.empty()) return false;
  comm::follow(comm::current_stream(stream_.device()), stream_);
  if (!as_views_)
    for (const std::size_t bucket : sent) at::_foreach_copy_(gradients_of(bucket), places_[bucket]);
  return true;
}

// The next backward writes into the buckets.
void DeviceExchange::forget() {
  if (std::exchange(sent_, {}).empty()) return;
  comm::follow(comm::current_stream(stream_.device()), stream_);
}

}  // namespace lockstep::parallel
