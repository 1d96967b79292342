#pragma once

// Which buckets of gradients are exchanged when: each as soon as it is complete, always in order, on all ranks.

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/bucket_exchange.h"
#include "lockstep/parallel/hooks/grad_bucket.h"
#include "lockstep/parallel/named_tensors.h"
#include "lockstep/parallel/options.h"
#include "lockstep/parallel/step_clock.h"

namespace lockstep::parallel {

class BucketSender {
 public:
  /// `clock` must outlive this.
  BucketSender(const NamedTensors& parameters, std::shared_ptr<comm::Group> group, const DataParallelOptions& options,
               StepClock& clock);

  /// From now on buckets are exchanged by `hook`. Collective.
  void set_hook(CommHook hook);

  /// A backward begins: no parameter is ready.
  void begin();
  /// The gradient of `parameter` is complete; once per backward.
  void set_ready(std::size_t parameter);
  bool is_ready(std::size_t parameter) const { return ready_[parameter]; }
  /// Whether the bucket of `parameter` was exchanged in this backward.
  bool is_sent(std::size_t parameter) const { return bucket_of_[parameter] < next_; }
  /// In this backward buckets without any of the parameters `used` are not exchanged.
  void skip_unless(const std::vector<bool>& used);
  bool is_skipped(std::size_t parameter) const { return buckets_[bucket_of_[parameter]].skipped; }

  /// Collective: exchanges what is complete. A mean over the ranks is multiplied by `correction`. Error naming the
  /// parameter of a sparse gradient, here and on the ranks that wait.
  void send(double correction);
  /// At the end of a backward: waits for what a communication hook has promised.
  void finish();
  /// What a backward that ended by an exception has left.
  void forget();

  /// Of each bucket, in the order in which they are sent.
  std::vector<std::size_t> bytes() const;

 private:
  struct Bucket {
    std::vector<std::size_t> parameters;
    std::size_t missing = 0;  ///< gradients not there yet in this backward
    bool skipped = false;     ///< in this backward
  };
  BucketExchange& exchange();
  void check_dense(const Bucket& bucket) const;

  const NamedTensors parameters_;
  std::shared_ptr<comm::Group> group_;
  StepClock& clock_;
  const bool as_views_;
  const std::optional<at::ScalarType> reduce_dtype_;
  std::vector<Bucket> buckets_;
  Buckets tensors_;                           ///< the same buckets
  std::vector<std::size_t> bucket_of_;        ///< by parameter
  std::vector<bool> ready_;                   ///< by parameter
  std::size_t next_ = 0;                      ///< the bucket to send next
  std::unique_ptr<BucketExchange> exchange_;  ///< from the first backward on
};

}  // namespace lockstep::parallel
