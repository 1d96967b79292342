#include "lockstep/train/make_model.h"

#include <ATen/Context.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/models/registry.h"
#include "lockstep/train/head.h"
#include "lockstep/train/options_optimizers.h"
#include "lockstep/train/own_names.h"

namespace lockstep::train {
namespace {

template <class... Kinds>
bool is_one_of(const torch::nn::Module& module) {
  return (... || (dynamic_cast<const Kinds*>(&module) != nullptr));
}

// torchvision's list.
bool normalises(const torch::nn::Module& module) {
  using namespace torch::nn;
  return is_one_of<BatchNorm1dImpl, BatchNorm2dImpl, BatchNorm3dImpl, LayerNormImpl, GroupNormImpl, InstanceNorm1dImpl,
                   InstanceNorm2dImpl, InstanceNorm3dImpl, LocalResponseNormImpl>(module);
}

// The names that torchvision's script knows.
bool is_embedding(const std::string& name) {
  return name == "class_token" || name == "position_embedding" || name == "relative_position_bias_table";
}

}  // namespace

std::shared_ptr<models::ImageModel> make_model(const Options& options, const models::ImageTask& task,
                                               const Additions& additions) {
  at::manual_seed(std::uint64_t(options.seed));
  const OwnModel* own = find_own_model(additions, options.model);
  const std::shared_ptr<models::ImageModel> model =
      own != nullptr ? own->make(task).model() : models::make_model(options.model, task);
  if (!options.head.empty()) replace_head(*model, options.head, task.classes);
  if (!options.weights.empty())
    checkpoint::load_file_into(*model, options.weights, checkpoint::name_map(options.weights_map));
  return model;
}

Amp amp_of(const Options& options) {
  return options.amp == "bf16" ? Amp::bf16 : options.amp == "fp16" ? Amp::fp16 : Amp::none;
}

bool has_convolutions(const models::ImageModel& model) {
  const std::vector<at::Tensor> parameters = model.parameters();
  return std::any_of(parameters.begin(), parameters.end(), [](const at::Tensor& p) { return p.dim() == 4; });
}

std::vector<WeightDecay> weight_decays(const Options& options, const torch::nn::Module& model) {
  WeightDecay biases{.decay = options.bias_weight_decay.value_or(0)},
      norms{.decay = options.norm_weight_decay.value_or(0)},
      embeddings{.decay = options.transformer_embedding_decay.value_or(0)};
  for (const auto& module : model.named_modules("", /*include_self=*/true))
    for (const auto& parameter : module.value()->named_parameters(/*recurse=*/false)) {
      if (!parameter.value().requires_grad()) continue;
      const std::string name = (module.key().empty() ? "" : module.key() + ".") + parameter.key();
      if (options.bias_weight_decay && parameter.key() == "bias")
        biases.names.push_back(name);
      else if (options.transformer_embedding_decay && is_embedding(parameter.key()))
        embeddings.names.push_back(name);
      else if (options.norm_weight_decay && normalises(*module.value()))
        norms.names.push_back(name);
    }
  std::vector<WeightDecay> found;
  for (WeightDecay& group : {std::ref(norms), std::ref(biases), std::ref(embeddings)})
    if (!group.names.empty()) found.push_back(std::move(group));
  return found;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Options& options, const torch::nn::Module& model,
                                                 optim::Target& target) {
  return optimizer_named(options.opt).make(options, weight_decays(options, model), target);
}

}  // namespace lockstep::train
