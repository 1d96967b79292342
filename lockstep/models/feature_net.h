#pragma once

// What AlexNet, VGG, MobileNet, DenseNet and EfficientNet have in common.

#include "lockstep/models/image_model.h"
#include "lockstep/models/layers.h"

namespace lockstep::models {

/// `features` turns pictures into maps, the means over side x side fields of the maps go through `classifier`.
/// So it takes pictures of any size that leaves a map; names: features.…, classifier.….
class FeatureNet : public ImageModel {
 public:
  /// `side` >= 1. `classifier`: a Linear or a Head.
  FeatureNet(Row features, std::int64_t side, std::shared_ptr<torch::nn::Module> classifier);
  at::Tensor forward(at::Tensor images) override;

 private:
  Row features_;
  std::int64_t side_;
};

}  // namespace lockstep::models
