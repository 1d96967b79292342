#pragma once

// Linear layers that compute their weight's gradient where it belongs: in the gradient slot.
//
// Elsewhere autograd computes it into fresh memory, and a hook copies it from there. For a layer with
// millions of weights and a small batch that copy is a large part of the backward pass. Inside a Scope,
// torch's `linear` on a parameter known here records a backward node of ours, whose matrix product has
// the slot for its output; the products are those of PyTorch's own node, and so are the bits. What does
// not fit (inputs of other than two dimensions, hooks on the weight, a second gradient within a shard)
// goes the usual way.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace lockstep::parallel {

class SlotLinear {
 public:
  /// The slot that the gradient of parameter `index` may be written to now, which from then on counts as
  /// written; null when it may not. Called during backward.
  using Take = std::function<const at::Tensor*(std::size_t index)>;

  SlotLinear(const std::vector<at::Tensor>& parameters, Take take);

  /// The index of `weight`, if it is one of the parameters.
  std::optional<std::size_t> find(const at::Tensor& weight) const;
  const at::Tensor* take(std::size_t index) const { return take_(index); }

  /// While it lives, `linear` on this thread looks here. Null: nowhere. Graphs hold `slots` weakly.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<SlotLinear> slots);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::shared_ptr<SlotLinear> before_;
  };

 private:
  std::unordered_map<const at::TensorImpl*, std::size_t> index_;
  Take take_;
};

}  // namespace lockstep::parallel
