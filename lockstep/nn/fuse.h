#pragma once

// Puts fused layers in the place of neighbours:
//
//   for (const lockstep::nn::Fusion& one : lockstep::nn::fuse(*model)) std::cout << one << '\n';
//
// In each Sequential of the model, itself included, a BatchNorm2d followed by a ReLU becomes a BatchNormReLU2d, and
// with a MaxPool2d behind them (2x2 of stride 2, or 3x3 of stride 2 and padding 1) a BatchNormReLUMaxPool2d. It has the
// parameters and buffers of the BatchNorm2d, the same tensors under the same names, so state dicts, optimizers and
// wrapped models stay as they are; the layers behind it become Identity, so that numbers in names stay, too.
//
// A Linear there becomes one of ours (linear.h), which computes its gradients in their slots.
//
// Elsewhere the order of registration need not be that of forward: besides Sequentials only what says itself what it
// fuses (fusible.h), as our own ResNets do. Left alone are
// layers of derived types, those that were given to convert_sync_batchnorm(), and those that were replaced by name
// (replace_module), which a Sequential does not run.
//
// Fusing BatchNorms changes the arithmetic (batch_norm_relu.h), so all ranks do it or none, and a resumed run as the
// one before.

#include <torch/nn/module.h>

#include <vector>

#include "lockstep/nn/fusible.h"

namespace lockstep::nn {

/// What was replaced, in the order of the modules; a second call finds nothing.
std::vector<Fusion> fuse(torch::nn::Module& model);

}  // namespace lockstep::nn
