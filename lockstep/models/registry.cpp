#include "lockstep/models/registry.h"

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/models/alexnet.h"
#include "lockstep/models/convnet.h"
#include "lockstep/models/densenet.h"
#include "lockstep/models/efficientnet.h"
#include "lockstep/models/linear.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/mobilenet.h"
#include "lockstep/models/resnet.h"
#include "lockstep/models/vgg.h"
#include "lockstep/models/vision_transformer.h"

namespace lockstep::models {
namespace {

struct Entry {
  std::string name;
  std::function<std::shared_ptr<ImageModel>(const ImageTask& task)> make;
  PictureSizes sizes = {};
};

Entry resnet(const std::string& name, const ResNetKind& kind) {
  return {name, [kind](const ImageTask& task) { return std::make_shared<ResNet>(kind, task.channels, task.classes); }};
}

Entry vgg(const std::string& name, const VggKind& kind) {
  return {name, [kind](const ImageTask& task) { return make_vgg(kind, task); }, {.smallest = 32}};
}

constexpr std::array<int, 4> kBlocksOf50 = {3, 4, 6, 3};
constexpr std::array<int, 4> kBlocksOf101 = {3, 4, 23, 3};
constexpr std::array<int, 5> kVgg11 = {1, 1, 2, 2, 2};
constexpr std::array<int, 5> kVgg13 = {2, 2, 2, 2, 2};
constexpr std::array<int, 5> kVgg16 = {2, 2, 3, 3, 3};
constexpr std::array<int, 5> kVgg19 = {2, 2, 4, 4, 4};

const std::vector<Entry>& registry() {
  static const std::vector<Entry> table = {
      {"linear", [](const ImageTask& task) { return std::make_shared<LinearClassifier>(task); }, {.one_size = true}},
      {"mlp", [](const ImageTask& task) { return std::make_shared<Mlp>(0, task); }, {.one_size = true}},
      {"mlp_dropout", [](const ImageTask& task) { return std::make_shared<Mlp>(0.5, task); }, {.one_size = true}},
      {"convnet",
       [](const ImageTask& task) { return std::make_shared<ConvNet>(task); },
       {.smallest = 4, .one_size = true}},
      resnet("resnet18", {.blocks = {2, 2, 2, 2}}),
      resnet("resnet34", {.blocks = kBlocksOf50}),
      resnet("resnet50", {.bottleneck = true, .blocks = kBlocksOf50}),
      resnet("resnet101", {.bottleneck = true, .blocks = kBlocksOf101}),
      resnet("resnet152", {.bottleneck = true, .blocks = {3, 8, 36, 3}}),
      resnet("resnet18_cifar", {.blocks = {2, 2, 2, 2}, .small_pictures = true}),
      resnet("resnext50_32x4d", {.bottleneck = true, .blocks = kBlocksOf50, .groups = 32, .group_width = 4}),
      resnet("resnext101_32x8d", {.bottleneck = true, .blocks = kBlocksOf101, .groups = 32, .group_width = 8}),
      resnet("wide_resnet50_2", {.bottleneck = true, .blocks = kBlocksOf50, .group_width = 128}),
      resnet("wide_resnet101_2", {.bottleneck = true, .blocks = kBlocksOf101, .group_width = 128}),
      vgg("vgg11", {.convolutions = kVgg11}),
      vgg("vgg13", {.convolutions = kVgg13}),
      vgg("vgg16", {.convolutions = kVgg16}),
      vgg("vgg19", {.convolutions = kVgg19}),
      vgg("vgg11_bn", {.convolutions = kVgg11, .batch_norm = true}),
      vgg("vgg13_bn", {.convolutions = kVgg13, .batch_norm = true}),
      vgg("vgg16_bn", {.convolutions = kVgg16, .batch_norm = true}),
      vgg("vgg19_bn", {.convolutions = kVgg19, .batch_norm = true}),
      {"alexnet", make_alexnet, {.smallest = 63}},
      {"mobilenet_v2", make_mobilenet_v2},
      {"densenet121", [](const ImageTask& task) { return make_densenet({}, task); }, {.smallest = 29}},
      {"efficientnet_b0", make_efficientnet_b0},
      {"vit_b_16",
       [](const ImageTask& task) { return make_vision_transformer({}, task); },
       {.smallest = 16, .multiple = 16, .one_size = true}},
  };
  return table;
}

const Entry& entry(const std::string& name) {
  for (const Entry& known : registry())
    if (known.name == name) return known;
  throw UsageError(base::unknown_name("model", name, model_names()));
}

std::string wanted(const PictureSizes& sizes) {
  const std::string side = std::to_string(sizes.smallest);
  if (sizes.multiple > 1) return "squares whose side is a multiple of " + std::to_string(sizes.multiple);
  return "pictures of " + side + "x" + side + " or larger";
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& known : registry()) names.push_back(known.name);
  return names;
}

PictureSizes picture_sizes(const std::string& name) { return entry(name).sizes; }

void check_pictures(const std::string& name, const ImageTask& task) {
  const PictureSizes sizes = picture_sizes(name);
  const bool fits = task.height >= sizes.smallest && task.width >= sizes.smallest;
  const bool is_cut = sizes.multiple == 1 || (task.height == task.width && task.height % sizes.multiple == 0);
  if (fits && is_cut) return;
  throw UsageError("model '" + name + "' cannot take pictures of " + std::to_string(task.height) + "x" +
                   std::to_string(task.width) + ": " + wanted(sizes) + " expected");
}

std::shared_ptr<ImageModel> make_model(const std::string& name, const ImageTask& task) {
  const Entry& known = entry(name);
  check_pictures(name, task);
  return known.make(task);
}

}  // namespace lockstep::models
