#pragma once

// Buckets of gradients of a module that is on a device.

#include <c10/core/Stream.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/bucket_exchange.h"

namespace lockstep::parallel {

/// By their mean, in memory of the device. All-reduces are in a stream of their own, in which backward does not wait
/// for them; finish() makes the stream that is current then wait, and not the host. What the group does on the host's
/// side it does at once (comm/group.h).
class DeviceExchange final : public BucketExchange {
 public:
  /// All parameters are on one device. `as_views`: .grad() are parts of the buckets from the first backward on.
  DeviceExchange(Buckets buckets, std::shared_ptr<comm::Group> group, bool as_views);

  void send(std::size_t bucket, double correction) override;
  bool finish() override;
  void forget() override;

 private:
  void take_memory();
  std::vector<at::Tensor> gradients_of(std::size_t bucket) const;

  const Buckets buckets_;
  const std::shared_ptr<comm::Group> group_;
  const bool as_views_;
  const c10::Stream stream_;
  std::vector<at::Tensor> memory_;  ///< of each bucket; from the first backward on
  Buckets places_;                  ///< in it, by parameter, of its shape and strides
  std::vector<std::size_t> sent_;   ///< in this backward
};

}  // namespace lockstep::parallel
