#pragma once

// What one optimizer step does to one weight: the numbers of the formula, all that depends
// on the step already folded in. Rules are values; the same rule on all ranks.
//
// The operations, their order and where a product and a sum are fused are those of Python's
// torch.optim (2.11, single-tensor implementation on CPU with AVX2 or AVX-512), so that the bits
// are PyTorch's (tests/parity/optimizer_test.py). The one exception is Adam's square root: ours
// is correctly rounded; PyTorch's is MKL's, off by up to a unit in the last place.
// Elementwise, with g the mean gradient:
//
// SGD:    g += weight_decay * w
//         m  = first ? g : momentum * m + (1 - dampening) * g     (only if momentum != 0)
//         g  = nesterov ? g + momentum * m : m
//         w -= lr * g
// Adam:   g += weight_decay * w            (AdamW instead: w *= 1 - lr * weight_decay)
//         m  = (1 - beta1) * (g - m) + m     (from beta1 = 0.5 down: -beta1 * (g - m) + g)
//         v  = beta2 * v + (1 - beta2) * g * g
//         w -= (lr / (1 - beta1^t) * m) / (sqrt(v) / sqrt(1 - beta2^t) + eps)

#include <cstdint>
#include <variant>

namespace lockstep::optim {

struct SGDRule {
  float negative_lr = 0;
  float momentum = 0;
  float gradient_weight = 1;  ///< 1 - dampening
  float weight_decay = 0;
  bool nesterov = false;
  bool first = false;  ///< the step at which the momentum buffer starts as the gradient
};

struct AdamRule {
  float decoupled_decay = 1;        ///< AdamW: 1 - lr * weight_decay; Adam: 1
  float weight_decay = 0;           ///< Adam: L2 added to the gradient; AdamW: 0
  float lerp = 0;                   ///< 1 - beta1, or that minus 1 when from the gradient
  bool lerp_from_gradient = false;  ///< torch's lerp starts at the nearer end: beta1 <= 0.5
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float bias_correction2_sqrt = 1;
  float eps = 0;
  float negative_step_size = 0;
};

using Rule = std::variant<SGDRule, AdamRule>;

}  // namespace lockstep::optim
