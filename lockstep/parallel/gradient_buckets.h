#pragma once

// The classic path, for optimizers that are not ours: gradients are averaged over the ranks
// in buckets while backward runs, and are found in .grad() afterwards, as with PyTorch's
// DistributedDataParallel. No shared state, no transaction; a bucket is put together in memory that the
// ranks share, where the all-reduce copies nothing.

#include <memory>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/gradient_hooks.h"
#include "lockstep/parallel/named_tensors.h"

namespace lockstep::parallel {

/// Which parameters travel together: indices, in the order in which the buckets are sent.
/// Parameters are taken from the last to the first (backward's usual order) until a bucket
/// holds `capacity` bytes.
std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<std::size_t>& bytes, std::size_t capacity);

class GradientBuckets {
 public:
  static constexpr std::size_t kCapacity = std::size_t(25) << 20;  ///< as PyTorch's bucket_cap_mb

  /// `find_unused`: a parameter without a gradient counts as zeros; where all ranks have none, it keeps what .grad() it
  /// had. Else that is an Error naming it.
  GradientBuckets(const NamedTensors& parameters, std::shared_ptr<comm::Group> group, bool find_unused,
                  std::size_t capacity = kCapacity);

  /// Forgets a backward that ended by an exception. Called before each forward.
  void begin_forward() { in_backward_ = false; }

  /// While false, gradients stay local and add up in .grad() (no_sync).
  void set_enabled(bool enabled) { enabled_ = enabled; }
  bool enabled() const { return enabled_; }

 private:
  struct Bucket {
    std::vector<std::size_t> parameters;
    std::size_t missing = 0;  ///< gradients not there yet in this backward
  };
  void on_gradient(std::size_t parameter);
  void begin_backward();
  void finish_backward();
  void add_unused();
  [[noreturn]] void refuse_unused(std::size_t parameter);
  void set_ready(std::size_t parameter);
  void send_ready();
  void send(const Bucket& bucket);

  NamedTensors parameters_;
  std::shared_ptr<comm::Group> group_;
  const bool find_unused_;
  std::vector<Bucket> buckets_;
  std::size_t largest_ = 0;  ///< bytes of the largest bucket
  at::Tensor together_;      ///< shared memory through which one bucket after the other goes; from the first on
  std::vector<std::size_t> bucket_of_;  ///< by parameter
  std::vector<bool> ready_;             ///< by parameter
  std::vector<bool> used_;              ///< by parameter: since gradients were last averaged, no_sync included
  std::size_t next_ = 0;                ///< the bucket to send next: always in order, on all ranks
  bool in_backward_ = false;
  bool enabled_ = true;
  GradientHooks hooks_;  ///< last: silenced before the rest goes
};

}  // namespace lockstep::parallel
