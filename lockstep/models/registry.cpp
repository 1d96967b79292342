#include "lockstep/models/registry.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/models/convnet.h"
#include "lockstep/models/mlp.h"

namespace lockstep::models {
namespace {

using Maker = std::shared_ptr<ImageModel> (*)();

const std::vector<std::pair<std::string, Maker>>& registry() {
  static const std::vector<std::pair<std::string, Maker>> table = {
      {"mlp", []() -> std::shared_ptr<ImageModel> { return std::make_shared<Mlp>(); }},
      {"mlp_dropout", []() -> std::shared_ptr<ImageModel> { return std::make_shared<Mlp>(0.5); }},
      {"convnet", []() -> std::shared_ptr<ImageModel> { return std::make_shared<ConvNet>(); }},
  };
  return table;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : registry()) names.push_back(name);
  return names;
}

std::shared_ptr<ImageModel> make_model(const std::string& name) {
  for (const auto& [known, maker] : registry()) {
    if (known == name) return maker();
  }
  throw UsageError(base::unknown_name("model", name, model_names()));
}

}  // namespace lockstep::models
