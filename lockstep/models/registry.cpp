#include "lockstep/models/registry.h"

#include <functional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/models/convnet.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/resnet.h"

namespace lockstep::models {
namespace {

using Maker = std::function<std::shared_ptr<ImageModel>(const ImageTask& task)>;

Maker resnet(const ResNetKind& kind) {
  return [kind](const ImageTask& task) { return std::make_shared<ResNet>(kind, task.channels, task.classes); };
}

const std::vector<std::pair<std::string, Maker>>& registry() {
  static const std::vector<std::pair<std::string, Maker>> table = {
      {"mlp", [](const ImageTask& task) { return std::make_shared<Mlp>(0, task); }},
      {"mlp_dropout", [](const ImageTask& task) { return std::make_shared<Mlp>(0.5, task); }},
      {"convnet", [](const ImageTask& task) { return std::make_shared<ConvNet>(task); }},
      {"resnet18", resnet({.blocks = {2, 2, 2, 2}})},
      {"resnet34", resnet({.blocks = {3, 4, 6, 3}})},
      {"resnet50", resnet({.bottleneck = true, .blocks = {3, 4, 6, 3}})},
      {"resnet101", resnet({.bottleneck = true, .blocks = {3, 4, 23, 3}})},
      {"resnet152", resnet({.bottleneck = true, .blocks = {3, 8, 36, 3}})},
      {"resnet18_cifar", resnet({.blocks = {2, 2, 2, 2}, .small_pictures = true})},
  };
  return table;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : registry()) names.push_back(name);
  return names;
}

std::shared_ptr<ImageModel> make_model(const std::string& name, const ImageTask& task) {
  for (const auto& [known, maker] : registry()) {
    if (known == name) return maker(task);
  }
  throw UsageError(base::unknown_name("model", name, model_names()));
}

}  // namespace lockstep::models
