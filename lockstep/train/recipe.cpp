#include "lockstep/train/recipe.h"

#include <ATen/Context.h>

#include <algorithm>
#include <map>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/models/registry.h"

namespace lockstep::train {
namespace {

using OptimizerMaker = std::unique_ptr<optim::Optimizer> (*)(const Options& options, optim::Target& target);

std::unique_ptr<optim::Optimizer> make_sgd(const Options& options, optim::Target& target) {
  return std::make_unique<optim::SGD>(target, optim::SGDOptions{.lr = options.lr,
                                                                .momentum = options.momentum,
                                                                .weight_decay = options.weight_decay,
                                                                .nesterov = options.opt == "sgd_nesterov"});
}

std::unique_ptr<optim::Optimizer> make_adam(const Options& options, optim::Target& target) {
  return std::make_unique<optim::Adam>(target,
                                       optim::AdamOptions{.lr = options.lr, .weight_decay = options.weight_decay});
}

std::unique_ptr<optim::Optimizer> make_adamw(const Options& options, optim::Target& target) {
  return std::make_unique<optim::AdamW>(target,
                                        optim::AdamWOptions{.lr = options.lr, .weight_decay = options.weight_decay});
}

}  // namespace

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
  static const std::map<std::string, OptimizerMaker> makers = {
      {"sgd", make_sgd}, {"sgd_nesterov", make_sgd}, {"adam", make_adam}, {"adamw", make_adamw}};
  return makers.at(options.opt)(options, target);
}

Schedule make_schedule(const Options& options) {
  return [lr = options.lr](std::int64_t) { return lr; };
}

}  // namespace lockstep::train
