#pragma once

// PowerSGD: gradients exchanged as products of two thin matrices (Vogels, Karimireddy, Jaggi 2019), as
// torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook does it, with its options, random numbers and weights.
//
//   auto state = std::make_shared<lockstep::PowerSGDState>(world.group(), lockstep::PowerSGDOptions{...});
//   ddp.register_comm_hook(state, lockstep::powerSGD_hook);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/hooks/grad_bucket.h"

namespace lockstep::parallel {

/// PyTorch's names and defaults.
struct PowerSGDOptions {
  /// Columns of the thin matrices: more are nearer to the gradient, and dearer. At least 1.
  int matrix_approximation_rank = 1;
  /// In the first ones gradients are exchanged whole: they say where training goes. PyTorch wants more than 1 with
  /// use_error_feedback or warm_start, because its buckets change after the first; ours do not, so any number will do.
  std::int64_t start_powerSGD_iter = 1000;
  /// A matrix n x m is exchanged whole unless (n + m) * rank * this < n * m. Of powerSGD_hook. More than 0.
  double min_compression_rate = 2;
  /// What a step leaves out is added to the gradients of the next.
  bool use_error_feedback = true;
  /// The thin matrices of a step are where the next begins, and not random.
  bool warm_start = true;
  /// Added to norms of columns, lest a column of zeros be divided by 0. Of powerSGD_hook. Not negative.
  double orthogonalization_epsilon = 0;
  /// The same on all ranks.
  std::uint32_t random_seed = 0;
  /// Multiplies matrices of one shape in one call. Of powerSGD_hook.
  bool batch_tensors_with_same_shape = false;
};

/// What PowerSGD remembers between steps, of one rank.
class PowerSGDState {
 public:
  /// UsageError naming the option that is out of range.
  explicit PowerSGDState(std::shared_ptr<comm::Group> process_group, PowerSGDOptions options = {});

  const PowerSGDOptions& options() const { return options_; }
  /// Backward passes so far.
  std::int64_t iter() const { return iter_; }

  struct Stats {
    double rate = 0;  ///< before / after; 0 before anything was compressed
    std::int64_t numel_before = 0;
    std::int64_t numel_after = 0;
  };
  /// Of all steps so far that were compressed.
  Stats compression_stats() const;

  /// All that training goes on from, under PyTorch's names: "iter", "rng", "error_dict.BUCKET", "p_memory_dict.BUCKET"
  /// and the like. Errors are this rank's own: each rank saves and restores its own state. The tensors are copies.
  std::map<std::string, at::Tensor> state_dict() const;
  /// UsageError naming what is missing, unknown, or of another dtype.
  void load_state_dict(const std::map<std::string, at::Tensor>& saved);

 private:
  friend GradFuture powerSGD_hook(PowerSGDState& state, GradBucket& bucket);
  friend GradFuture batched_powerSGD_hook(PowerSGDState& state, GradBucket& bucket);

  /// Whether the bucket is exchanged whole; then it has been.
  bool warms_up(GradBucket& bucket);
  void count(const GradBucket& bucket) { iter_ += bucket.is_last() ? 1 : 0; }
  /// `input` with what the last step left out of the bucket.
  void add_error(std::size_t bucket, const at::Tensor& input);
  /// Whether thin matrices of the last step are there; else there is memory for new ones.
  bool prepare(std::size_t bucket, at::IntArrayRef p_sizes, at::IntArrayRef q_sizes, const at::TensorOptions& options);
  /// The generator of the next random matrices: numpy's RandomState(seed).randint(1e9) seeds torch's.
  at::Generator next_generator();
  void end_step(std::size_t bucket, const at::Tensor& wanted, const at::Tensor& got);

  std::shared_ptr<comm::Group> group_;
  PowerSGDOptions options_;
  std::mt19937 rng_;  ///< numpy's RandomState is this engine with this seeding
  std::int64_t iter_ = 0;
  Stats stats_;
  std::map<std::size_t, at::Tensor> error_, p_, q_;  ///< by bucket
};

/// Each matrix, and each tensor taken as one by its first dimension, is compressed where that saves enough; the others
/// are exchanged whole.
GradFuture powerSGD_hook(PowerSGDState& state, GradBucket& bucket);

/// The bucket as one square matrix: cheaper, and mostly less exact.
GradFuture batched_powerSGD_hook(PowerSGDState& state, GradBucket& bucket);

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::batched_powerSGD_hook;
using parallel::powerSGD_hook;
using parallel::PowerSGDOptions;
using parallel::PowerSGDState;
}  // namespace lockstep
