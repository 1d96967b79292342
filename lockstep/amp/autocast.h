#pragma once

// Mixed precision: float32 weights, arithmetic in 16 bits where it is safe, as Python's torch.autocast("cpu").

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace lockstep::amp {

enum class Amp {
  none,
  bf16,  ///< convolutions and matrix products in bfloat16, what needs more in float32 (PyTorch's lists)
  fp16,  ///< the same in float16, whose small range wants a GradScaler (grad_scaler.h)
};

/// torch.autocast's arguments and defaults.
struct AutocastOptions {
  c10::DeviceType device = c10::kCPU;
  std::optional<c10::ScalarType> dtype = {};  ///< none: what is set for the device, bfloat16 for the CPU
  bool enabled = true;                        ///< false: an island of float32 within a scope
  std::optional<bool> cache_enabled = {};     ///< whether a weight is cast once per scope; none: as around the scope
};

/// Switches autocast for a scope, on this thread. The innermost scope holds.
class [[nodiscard]] Autocast {
 public:
  explicit Autocast(Amp amp, c10::DeviceType device = c10::kCPU);
  /// UsageError for a device without autocast, and for a dtype that the CPU's has not.
  explicit Autocast(const AutocastOptions& options);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool enabled_before_;
  bool cache_before_;
  c10::ScalarType dtype_before_;
};

}  // namespace lockstep::amp

namespace lockstep {
using amp::Amp;
using amp::Autocast;
using amp::AutocastOptions;
}  // namespace lockstep
