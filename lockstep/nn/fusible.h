#pragma once

// For a model that fuses what follows each other in its forward, which fuse() cannot see outside of a Sequential:
//
//   struct Block : torch::nn::Module, lockstep::nn::Fusible {
//     std::vector<lockstep::nn::Fusion> fuse_layers() override {
//       auto layer = lockstep::nn::fused<lockstep::nn::BatchNormReLU2dImpl>(*norm);
//       ...                                                           // replace_module("bn1", layer), if it is one
//     }
//   };

#include <torch/nn/modules/batchnorm.h>

#include <iosfwd>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "lockstep/parallel/sync_batch_norm.h"

namespace lockstep::nn {

/// One layer put in the place of one or several.
struct Fusion {
  std::string name;   ///< of the layer, which was that of the first of them: "layer1.1"
  std::string from;   ///< "BatchNorm2d, ReLU, MaxPool2d"
  std::string layer;  ///< "BatchNormReLUMaxPool2d"
};

/// "layer1.1: BatchNorm2d, ReLU, MaxPool2d -> BatchNormReLUMaxPool2d"
std::ostream& operator<<(std::ostream& stream, const Fusion& fusion);

class Fusible {
 public:
  virtual ~Fusible() = default;
  /// Replaces layers of this module, not of those within it, by fused ones, and registers them by their names. Returns
  /// what was replaced, by names within the module; nothing at a second call.
  virtual std::vector<Fusion> fuse_layers() = 0;
};

/// A layer of type Fused (batch_norm_relu.h) with the tensors of `norm` and what `more` its constructor takes. Null
/// where `norm` is of a derived type or was given to convert_sync_batchnorm().
template <class Fused, class... More>
std::shared_ptr<Fused> fused(const torch::nn::BatchNorm2dImpl& norm, More... more) {
  if (typeid(norm) != typeid(torch::nn::BatchNorm2dImpl) || !parallel::synchronized_layer(norm).empty()) return nullptr;
  return std::make_shared<Fused>(norm, more...);
}

}  // namespace lockstep::nn
