#pragma once

// Buckets of gradients as a communication hook exchanges them (hooks/grad_bucket.h).

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/bucket_exchange.h"
#include "lockstep/parallel/hooks/grad_bucket.h"

namespace lockstep::parallel {

class HookedExchange final : public BucketExchange {
 public:
  /// Collective: takes memory that the ranks of a node share.
  HookedExchange(Buckets buckets, std::shared_ptr<comm::Group> group, CommHook hook);

  /// What a hook makes of a bucket is not corrected.
  void send(std::size_t bucket, double correction) override;
  bool finish() override;
  void forget() override { pending_.clear(); }

 private:
  struct Pending {
    GradBucket bucket;
    GradFuture future;
  };
  void take(const GradBucket& bucket, const at::Tensor& reduced);

  Buckets buckets_;
  std::shared_ptr<comm::Group> group_;
  CommHook hook_;
  std::vector<at::Tensor> memory_;  ///< of each bucket
  std::vector<std::unique_ptr<Pending>> pending_;
};

}  // namespace lockstep::parallel
