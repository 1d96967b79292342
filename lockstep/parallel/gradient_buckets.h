#pragma once

// The classic path, for optimizers that are not ours: gradients are averaged over the ranks
// in buckets while backward runs, and are found in .grad() afterwards, as with PyTorch's
// DistributedDataParallel. No shared state, no transaction; a bucket is put together in memory that the
// ranks share, where the all-reduce copies nothing.

#include <memory>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/bucket_exchange.h"
#include "lockstep/parallel/gradient_hooks.h"
#include "lockstep/parallel/hooks/grad_bucket.h"
#include "lockstep/parallel/named_tensors.h"
#include "lockstep/parallel/uneven_inputs.h"

namespace lockstep::parallel {

/// Which parameters travel together: indices, in the order in which the buckets are sent.
/// Parameters are taken from the last to the first (backward's usual order) until a bucket
/// holds `capacity` bytes.
std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<std::size_t>& bytes, std::size_t capacity);

/// The same buckets, each cut into one for each dtype in it.
std::vector<std::vector<std::size_t>> cut_by_dtype(const std::vector<std::vector<std::size_t>>& buckets,
                                                   const std::vector<at::ScalarType>& dtypes);

class GradientBuckets {
 public:
  static constexpr std::size_t kCapacity = std::size_t(25) << 20;  ///< as PyTorch's bucket_cap_mb

  /// `find_unused`: a parameter without a gradient counts as zeros; where all ranks have none, it keeps what .grad() it
  /// had. Else that is an Error naming it.
  GradientBuckets(const NamedTensors& parameters, std::shared_ptr<comm::Group> group, bool find_unused,
                  std::size_t capacity = kCapacity);

  /// Forgets a backward that ended by an exception. Called before each forward.
  void begin_forward() {
    in_backward_ = false;
    exchange_->forget();
  }

  /// Backward passes that were averaged so far.
  std::uint64_t averaged() const { return averaged_; }

  /// From now on buckets are exchanged by `hook`. Collective.
  void set_hook(CommHook hook);

  /// While `inputs` is not null, each backward is announced there, and its mean is over those ranks that still have
  /// inputs where that is wanted.
  void set_inputs(UnevenInputs* inputs) { inputs_ = inputs; }
  /// The backward of a rank without inputs: zeros to all buckets. Its .grad() stay what they are.
  void backward_without_inputs();

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
  void expect_all();
  void finish_backward();
  void add_unused();
  [[noreturn]] void refuse_unused(std::size_t parameter);
  void set_ready(std::size_t parameter);
  void send_ready();

  NamedTensors parameters_;
  std::shared_ptr<comm::Group> group_;
  const bool find_unused_;
  std::vector<Bucket> buckets_;
  Buckets tensors_;                     ///< the same buckets
  std::vector<std::size_t> bucket_of_;  ///< by parameter
  std::vector<bool> ready_;             ///< by parameter
  std::vector<bool> used_;              ///< by parameter: since gradients were last averaged, no_sync included
  std::size_t next_ = 0;                ///< the bucket to send next: always in order, on all ranks
  std::uint64_t averaged_ = 0;
  std::unique_ptr<BucketExchange> exchange_;
  UnevenInputs* inputs_ = nullptr;  ///< null outside join()
  bool in_backward_ = false;
  bool enabled_ = true;
  GradientHooks hooks_;  ///< last: silenced before the rest goes
};

}  // namespace lockstep::parallel
