#include "lockstep/train/recipe.h"

#include <ATen/Context.h>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/digits.h"
#include "lockstep/data/readers/idx.h"
#include "lockstep/models/registry.h"

namespace lockstep::train {

data::ImageSet load_images(const Options& options, bool train) {
  if (options.dataset == "mnist") return data::load_mnist(options.data_path, train);
  return data::make_digits(train ? data::Split::train : data::Split::test);
}

std::shared_ptr<models::ImageModel> make_model(const Options& options) {
  at::manual_seed(std::uint64_t(options.seed));
  std::shared_ptr<models::ImageModel> model = models::make_model(options.model);
  if (!options.weights.empty())
    checkpoint::load_into(*model, checkpoint::read_safetensors(options.weights), "file " + options.weights);
  return model;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Options& options, optim::Target& target) {
  if (options.opt == "adam")
    return std::make_unique<optim::Adam>(target,
                                         optim::AdamOptions{.lr = options.lr, .weight_decay = options.weight_decay});
  if (options.opt == "adamw")
    return std::make_unique<optim::AdamW>(target,
                                          optim::AdamWOptions{.lr = options.lr, .weight_decay = options.weight_decay});
  return std::make_unique<optim::SGD>(target, optim::SGDOptions{.lr = options.lr,
                                                                .momentum = options.momentum,
                                                                .weight_decay = options.weight_decay,
                                                                .nesterov = options.opt == "sgd_nesterov"});
}

}  // namespace lockstep::train
