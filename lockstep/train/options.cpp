#include "lockstep/train/options.h"

#include <algorithm>

#include "lockstep/flags/parse.h"
#include "lockstep/train/options_checks.h"
#include "lockstep/train/options_table.h"

namespace lockstep::train {

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = {"mlp",      "mlp_dropout", "convnet",   "resnet18",      "resnet34",
                                                 "resnet50", "resnet101",   "resnet152", "resnet18_cifar"};
  return names;
}

const std::vector<std::string>& transform_names() {
  static const std::vector<std::string> names = {"none", "mnist", "cifar", "imagenet"};
  return names;
}

const std::vector<std::string>& interpolation_names() {
  static const std::vector<std::string> names = {"nearest", "bilinear", "bicubic"};
  return names;
}

const std::vector<std::string>& auto_augment_names() {
  static const std::vector<std::string> names = {"none", "imagenet", "cifar10", "ra", "ta_wide"};
  return names;
}

const std::vector<std::string>& amp_names() {
  static const std::vector<std::string> names = {"none", "bf16", "fp16"};
  return names;
}

const std::vector<std::string>& lr_scheduler_names() {
  static const std::vector<std::string> names = {"constant", "steplr", "multisteplr", "exponentiallr",
                                                 "cosineannealinglr"};
  return names;
}

const std::vector<std::string>& lr_warmup_names() {
  static const std::vector<std::string> names = {"constant", "linear"};
  return names;
}

const std::vector<std::string>& bind_to_names() {
  static const std::vector<std::string> names = {"none", "core"};
  return names;
}

Parsed parse_options(int argc, const char* const* argv) {
  Options options;
  const flags::Parsed parsed = flags::parse(table_of(options), {argv + std::min(argc, 1), argv + argc});
  if (!parsed.text.empty()) return {.options = {}, .text = parsed.text};
  settle(options, parsed);
  return {.options = options, .text = ""};
}

std::string options_json(Options options) { return flags::json(table_of(options)); }

}  // namespace lockstep::train
