#pragma once

// The state of a GradScaler whose optimizers step on a device: tensors there, so that nothing of a step waits for it.

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::amp {

struct GradScalerOptions;
struct ScalerState;

class DeviceScale {
 public:
  DeviceScale(const ScalerState& state, const GradScalerOptions& options, at::Device device);

  at::Device device() const { return scale_.device(); }
  /// loss * scale, of a loss on this device.
  at::Tensor scale(const at::Tensor& loss) const;
  /// Divides the gradients of the parameters, all of them dense, on this device and no bfloat16. Returns one float32
  /// number there: 1 if any is not finite, else 0.
  at::Tensor unscale_(const std::vector<at::Tensor>& parameters) const;
  /// The next state, by what unscale_() has returned since the last time; it was called at least once.
  void update(const std::vector<at::Tensor>& found_infs, const GradScalerOptions& options);

  /// Wait for the device. overflowed(): whether what the last update() was told of did.
  ScalerState read() const;
  bool overflowed() const;

 private:
  at::Tensor scale_;           ///< float32
  at::Tensor growth_tracker_;  ///< int32
  at::Tensor last_found_inf_;
};

}  // namespace lockstep::amp
