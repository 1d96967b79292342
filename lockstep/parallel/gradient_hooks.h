#pragma once

// Calls back when autograd has finished the gradient of a parameter.

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

  GradientHooks(std::vector<at::Tensor> parameters, Callback callback);
  /// Silences the hooks; autograd has no way to take one off a node.
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  /// Hooks parameters whose hook was lost: with their dtype, or by what torch::load does to them.
  void renew();
  /// The first parameter whose hook was lost so, or whose sizes are others; cheap.
  std::optional<std::size_t> first_lost() const;
  /// Hooks parameters that wanted no gradient at the last renew() and want one now.
  void hook_unfrozen();

 private:
  void hook(std::size_t index);

  std::vector<at::Tensor> parameters_;
  std::shared_ptr<Callback> callback_;
  std::vector<std::shared_ptr<torch::autograd::Node>>
      accumulators_;  ///< kept alive: tensors hold them weakly; null: frozen
};

}  // namespace lockstep::parallel
