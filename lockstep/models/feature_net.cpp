#include "lockstep/models/feature_net.h"

namespace lockstep::models {

FeatureNet::FeatureNet(Row features, std::int64_t side, std::shared_ptr<torch::nn::Module> classifier)
    : ImageModel("FeatureNet"), features_(register_module("features", std::move(features))), side_(side) {
  register_module("classifier", std::move(classifier));
}

at::Tensor FeatureNet::forward(at::Tensor images) {
  const at::Tensor maps = features_->forward(std::move(images));
  return through("classifier", at::adaptive_avg_pool2d(maps, {side_, side_}).flatten(1));
}

}  // namespace lockstep::models
