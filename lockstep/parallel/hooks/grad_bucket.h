#pragma once

// What a communication hook of the classic path is given and gives: a bucket of gradients, and what they become.
//
//   ddp.register_comm_hook([&](lockstep::GradBucket& bucket) -> lockstep::GradFuture {
//     world.all_reduce(bucket.buffer(), lockstep::ReduceOp::mean);
//     return bucket.buffer();
//   });

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::parallel {

/// Gradients that are exchanged together, one behind the other, from the last parameter of the model to the first: all
/// of one dtype. As torch.distributed.GradBucket.
class GradBucket {
 public:
  /// `buffer`: one dimension, with as many elements as the parameters together.
  GradBucket(std::size_t index, at::Tensor buffer, std::vector<at::Tensor> parameters, bool is_last)
      : index_(index), buffer_(std::move(buffer)), parameters_(std::move(parameters)), is_last_(is_last) {}

  /// From 0 on, in the order in which buckets are exchanged, the same in each backward and on all ranks.
  std::size_t index() const { return index_; }
  /// The gradients of this rank, flat. A hook may write into it; it is the memory of the bucket and lasts until the
  /// backward is done. The ranks of a node share it, so that a collective on it copies nothing.
  const at::Tensor& buffer() const { return buffer_; }
  /// One view of buffer() for each parameter, of its shape, contiguous.
  std::vector<at::Tensor> gradients() const;
  /// Of the model, in the order of gradients().
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  /// Whether it is the last of this backward.
  bool is_last() const { return is_last_; }
  /// Another tensor of as many elements, in one dimension, UsageError else; of any dtype.
  void set_buffer(at::Tensor buffer);

 private:
  std::size_t index_;
  at::Tensor buffer_;
  std::vector<at::Tensor> parameters_;
  bool is_last_;
};

/// The gradients that a hook makes of a bucket, at once or later. Flat, as many elements as the bucket, any dtype.
class GradFuture {
 public:
  // A hook returns one or the other.
  GradFuture(at::Tensor ready) : ready_(std::move(ready)) {}               // NOLINT(google-explicit-constructor)
  GradFuture(std::future<at::Tensor> later) : later_(std::move(later)) {}  // NOLINT(google-explicit-constructor)

  /// Waits; once. Error when it takes longer than base::kDefaultTimeout. What the future holds instead of a tensor is
  /// thrown.
  at::Tensor value();
  /// Whether value() waits for nothing.
  bool ready() const { return !later_.valid(); }
  /// What `function` makes of the value: now where it is ready, else when it is asked for.
  GradFuture then(std::function<at::Tensor(at::Tensor)> function) &&;

 private:
  at::Tensor ready_;
  std::future<at::Tensor> later_;
};

/// Called on the thread that runs backward, while it goes on, on all ranks for the same buckets in the same order. It
/// may run collectives, of the same kind on all ranks. A future is waited for at the end of backward, in the order of
/// the buckets: one that runs collectives of a group that a later hook uses too must be deferred
/// (std::async(std::launch::deferred, ...), GradFuture::then). What a hook throws ends the job.
using CommHook = std::function<GradFuture(GradBucket&)>;

/// What a hook remembers between steps, on this rank: for checkpoints.
struct HookMemory {
  using Tensors = std::map<std::string, at::Tensor>;
  std::function<Tensors()> get;             ///< copies
  std::function<void(const Tensors&)> set;  ///< UsageError for what is no such memory
  Tensors initial;                          ///< when the hook was registered
};

/// Of a state as PyTorch's hooks have it; nothing where it has no state_dict() and load_state_dict().
template <class State>
std::optional<HookMemory> memory_of(const std::shared_ptr<State>& state) {
  if constexpr (requires { state->load_state_dict(state->state_dict()); })
    return HookMemory{.get = [state] { return state->state_dict(); },
                      .set = [state](const HookMemory::Tensors& saved) { state->load_state_dict(saved); },
                      .initial = state->state_dict()};
  else
    return {};
}

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::CommHook;
using parallel::GradBucket;
using parallel::GradFuture;
}  // namespace lockstep
