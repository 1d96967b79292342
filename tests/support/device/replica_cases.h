#pragma once

// DataParallel on devices, beside the same on the CPU: for a stand-in device and for a real one alike.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <vector>

namespace lockstep::support {

/// A small net with BatchNorm that has a replica on each of these devices.
class CutNet {
 public:
  explicit CutNet(const std::vector<at::Device>& devices);
  ~CutNet();
  CutNet(const CutNet&) = delete;
  CutNet& operator=(const CutNet&) = delete;

  /// Some steps of gradient descent, each on 11 samples. On the CPU: each step's outputs and gradient of the inputs,
  /// then parameters, their last gradients and buffers. The same for as many devices, but for rounding.
  std::vector<at::Tensor> train(int steps);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Whether each pair of tensors is close.
void expect_close(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& wanted);

}  // namespace lockstep::support
