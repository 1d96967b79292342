#include "lockstep/models/linear.h"

#include <torch/nn/modules/linear.h>

namespace lockstep::models {

LinearClassifier::LinearClassifier(const ImageTask& task) : ImageModel("LinearClassifier") {
  register_module("fc", torch::nn::Linear(task.channels * task.height * task.width, task.classes));
}

at::Tensor LinearClassifier::forward(at::Tensor images) { return through("fc", images.flatten(1)); }

}  // namespace lockstep::models
