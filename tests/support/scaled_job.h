#pragma once

// Steps by a GradScaler on any device, with overflows at the same places everywhere.

#include <torch/torch.h>

#include <limits>
#include <vector>

#include "lockstep/amp/grad_scaler.h"

namespace lockstep::support {

struct Scaled {
  std::vector<double> scales;  ///< behind each step
  at::Tensor weight;           ///< at the end
};

/// The gradient is what is drawn. The first two steps overflow, and some more.
template <class Optimizer, class Options>
Scaled train_scaled(const Options& options, const GradScalerOptions& scaling, at::Device device = at::kCPU) {
  torch::manual_seed(5);
  const at::Tensor weight = torch::randn({20}).to(device).requires_grad_();
  Optimizer optimizer({weight}, options);
  GradScaler scaler(scaling);
  Scaled scaled;
  for (int step = 0; step < 30; ++step) {
    const at::Tensor gradient = torch::randn({20});
    for (const int overflowing : {0, 1, 7, 20, 21, 22})
      if (step == overflowing) gradient.select(0, step % 20).fill_(std::numeric_limits<float>::infinity());
    optimizer.zero_grad();
    scaler.scale((weight * gradient.to(device)).sum()).backward();
    if (step % 2 == 0) scaler.unscale_(optimizer);
    scaler.step(optimizer);
    scaler.update();
    scaled.scales.push_back(scaler.get_scale());
  }
  scaled.weight = weight.detach().cpu();
  return scaled;
}

}  // namespace lockstep::support
