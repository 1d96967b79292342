#pragma once

// Calls back when autograd has finished the gradient of a parameter, and tells a layer that computes it where it is to
// lie.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace lockstep::parallel {

class GradientHooks {
 public:
  /// Called on the thread that runs backward, with the parameter's index; its .grad() holds the
  /// gradient just accumulated and may be taken away. `added`: false where the backward of a function gave none. What
  /// it throws comes out of backward().
  using Callback = std::function<void(std::size_t parameter, bool added)>;

  /// Memory of this dtype for the gradient of a parameter, which whoever asks fills and hands nothing to autograd:
  /// undefined where it has to come by way of .grad(). Called during backward, and before the callback.
  using Place = std::function<at::Tensor(std::size_t parameter, at::ScalarType dtype)>;

  /// Without `place` all gradients come by way of .grad().
  GradientHooks(std::vector<at::Tensor> parameters, Callback callback, Place place = {});
  /// Silences the hooks; autograd has no way to take one off a node.
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  /// Whether the gradient of `parameter` may have a Place, by whosever hooks.
  static bool has_place(const at::Tensor& parameter);

  /// For the backward of a layer, on the thread that runs it: where the gradient that `node` gives as its output
  /// `output` is to be computed. Who gets memory fills it and returns an undefined gradient there; undefined: it is
  /// returned as usual. That is where the output is no parameter's with a Place or the Place has none, in
  /// torch::autograd::grad(), which wants the gradient for itself, and where a hook of somebody else's on the parameter
  /// would not see it. Errors are the Place's. Not for gradients that are to be differentiated again.
  static at::Tensor take_place(const torch::autograd::Node& node, std::size_t output, at::ScalarType dtype);

  /// Hooks parameters whose hook was lost: with their dtype, or by what torch::load does to them.
  void renew();
  /// The first parameter whose hook was lost so, or whose sizes are others; cheap.
  std::optional<std::size_t> first_lost() const;
  /// Hooks parameters that wanted no gradient at the last renew() and want one now.
  void hook_unfrozen();

 private:
  void hook(std::size_t index);

  struct Calls {
    Callback callback;
    Place place;
  };
  class Hook;

  std::vector<at::Tensor> parameters_;
  std::shared_ptr<Calls> calls_;
  std::vector<std::shared_ptr<torch::autograd::Node>>
      accumulators_;  ///< kept alive: tensors hold them weakly; null: frozen
};

}  // namespace lockstep::parallel
