#include "lockstep/train/recipe.h"

#include <ATen/Context.h>

#include <algorithm>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/models/registry.h"
#include "lockstep/train/options_optimizers.h"

namespace lockstep::train {
std::shared_ptr<models::ImageModel> make_model(const Options& options, const models::ImageTask& task) {
  at::manual_seed(std::uint64_t(options.seed));
  std::shared_ptr<models::ImageModel> model = models::make_model(options.model, task);
  if (!options.weights.empty())
    checkpoint::load_into(*model, checkpoint::read_safetensors(options.weights), "file " + options.weights);
  return model;
}

bool has_convolutions(const models::ImageModel& model) {
  const std::vector<at::Tensor> parameters = model.parameters();
  return std::any_of(parameters.begin(), parameters.end(), [](const at::Tensor& p) { return p.dim() == 4; });
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Options& options, optim::Target& target) {
  return optimizer_named(options.opt).make(options, target);
}

Schedule make_schedule(const Options& options) {
  return [lr = options.lr](std::int64_t) { return lr; };
}

}  // namespace lockstep::train
