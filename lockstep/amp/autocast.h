#pragma once

// Mixed precision: float32 weights, arithmetic in 16 bits where it is safe, as Python's torch.autocast("cpu").

#include <c10/core/ScalarType.h>

namespace lockstep::amp {

enum class Amp {
  none,
  bf16,  ///< convolutions and matrix products in bfloat16, what needs more in float32 (PyTorch's lists)
  fp16,  ///< the same in float16, whose small range wants a GradScaler (grad_scaler.h)
};

/// Switches autocast on the CPU to what `amp` says for a scope, on this thread. The innermost scope holds.
class [[nodiscard]] Autocast {
 public:
  explicit Autocast(Amp amp);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool enabled_before_;
  c10::ScalarType dtype_before_;
};

}  // namespace lockstep::amp

namespace lockstep {
using amp::Amp;
}  // namespace lockstep
