#include "lockstep/train/options.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/sets/known_sets.h"
#include "lockstep/flags/parse.h"
#include "lockstep/train/options_checks.h"
#include "lockstep/train/options_recipes.h"
#include "lockstep/train/options_sources.h"
#include "lockstep/train/options_table.h"

namespace lockstep::train {
namespace {

// As it stands on a command line.
std::string word_of(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  std::string word = value.dump();
  return value.is_array() ? word.substr(1, word.size() - 2) : word;
}

using Files = std::vector<flags::FlagFile>;

// Those that the flags name, a later one before an earlier one.
Files files_of(const Options& options) {
  Files files;
  if (!options.recipe.empty()) files.push_back(flags_of(find_recipe(options.recipe)));
  if (!options.config.empty()) files.push_back(read_config(options.config));
  for (const flags::FlagFile& file : files)
    for (const auto& [key, value] : file.values)
      if (key == "recipe" || key == "config" || key == "download" || key == "download_mirror")
        throw UsageError(file.name + ": '" + key + "' stands on the command line or in the environment");
  return files;
}

// Before any flag is read.
Options usual(const OwnNames& own) {
  Options options{.own = own};
  if (!own.models.empty()) options.model = own.models.front();
  if (!own.sets.empty()) options.dataset = own.sets.front().name;
  return options;
}

// False: none of them has it.
bool leave_out(Files& files, const std::string& flag) {
  Options options;
  std::string key;
  for (const flags::Flag& row : flags::all_flags(table_of(options)))
    if (flags::name_of(row) == flag) key = flags::key_of(row);
  std::size_t erased = 0;
  for (flags::FlagFile& file : files)
    erased += std::erase_if(file.values, [&](const auto& value) { return value.first == key; });
  return erased > 0;
}

// Whether the files give the flag, and it has a meaning beside what else they say. Where a run goes is in no file.
bool means_something(const std::string& flag, Files files, const OwnNames& own, const std::string& output_dir) {
  for (;;) {
    try {
      Options options = usual(own);
      const flags::Parsed parsed = flags::parse(table_of(options), {}, {}, files);
      if (!given(parsed, flag)) return false;
      if (options.output_dir.empty()) options.output_dir = output_dir;
      settle(options, parsed);
      return true;
    } catch (const NoMeaning& refused) {
      if (refused.flag() == flag || !leave_out(files, refused.flag())) return false;
    } catch (const UsageError&) {  // for lack of what the command line has, as a place of data
      return true;
    }
  }
}

// Whether a flag of the files has lost its meaning by those that go before them, or by a file that does.
bool is_overruled(const std::string& flag, const flags::Parsed& parsed, const Files& files, const Options& options) {
  if (!only_by_file(parsed, flag)) return false;
  for (std::size_t count = 1; count <= files.size(); ++count)
    if (means_something(flag, {files.begin(), files.begin() + std::ptrdiff_t(count)}, options.own, options.output_dir))
      return true;
  return false;
}

// The flags with all files: what those before the files leave without meaning there is left out, one flag at a time,
// for one may be the reason for the next.
Options read_with(const Files& files, const std::vector<std::string>& words, const OwnNames& own) {
  Files rest = files;
  std::vector<std::string> left_out;
  for (;;) {
    Options options = usual(own);
    const flags::Parsed parsed = flags::parse(table_of(options), words, ::getenv, rest);
    try {
      settle(options, parsed);
      options.left_out = std::move(left_out);
      return options;
    } catch (const NoMeaning& refused) {
      if (!is_overruled(refused.flag(), parsed, files, options) || !leave_out(rest, refused.flag())) throw;
      left_out.push_back(refused.flag());
    }
  }
}

}  // namespace

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = {"linear",          "mlp",
                                                 "mlp_dropout",     "convnet",
                                                 "resnet18",        "resnet34",
                                                 "resnet50",        "resnet101",
                                                 "resnet152",       "resnet18_cifar",
                                                 "resnext50_32x4d", "resnext101_32x8d",
                                                 "wide_resnet50_2", "wide_resnet101_2",
                                                 "vgg11",           "vgg13",
                                                 "vgg16",           "vgg19",
                                                 "vgg11_bn",        "vgg13_bn",
                                                 "vgg16_bn",        "vgg19_bn",
                                                 "alexnet",         "mobilenet_v2",
                                                 "densenet121",     "efficientnet_b0",
                                                 "vit_b_16"};
  return names;
}

const std::vector<std::string>& parallel_names() {
  static const std::vector<std::string> names = {"ddp", "dp"};
  return names;
}

const std::vector<std::string>& transform_names() {
  static const std::vector<std::string> names = {"none", "mnist", "cifar", "imagenet", "standardize"};
  return names;
}

const std::vector<std::string>& loss_names() {
  static const std::vector<std::string> names = {"cross_entropy", "mse", "l1", "smooth_l1"};
  return names;
}

const data::KnownSet& set_of(const Options& options) {
  const auto own = std::ranges::find(options.own.sets, options.dataset, &data::KnownSet::name);
  return own != options.own.sets.end() ? *own : data::find_set(options.dataset);
}

bool is_own_model(const Options& options) {
  return std::ranges::find(options.own.models, options.model) != options.own.models.end();
}

bool is_regression(const Options& options) { return data::holds_numbers(set_of(options)); }

const std::vector<std::string>& interpolation_names() {
  static const std::vector<std::string> names = {"nearest", "nearest-exact", "bilinear", "bicubic",
                                                 "box",     "hamming",       "lanczos"};
  return names;
}

const std::vector<std::string>& auto_augment_names() {
  static const std::vector<std::string> names = {"none", "imagenet", "cifar10", "svhn", "ra", "ta_wide", "augmix"};
  return names;
}

const std::vector<std::string>& amp_names() {
  static const std::vector<std::string> names = {"none", "bf16", "fp16"};
  return names;
}

const std::vector<std::string>& lr_scheduler_names() {
  static const std::vector<std::string> names = {
      "constant", "steplr", "multisteplr", "exponentiallr", "cosineannealinglr", "reducelronplateau"};
  return names;
}

const std::vector<std::string>& lr_warmup_names() {
  static const std::vector<std::string> names = {"constant", "linear"};
  return names;
}

const std::vector<std::string>& reduction_names() {
  static const std::vector<std::string> names = {"exact", "fast"};
  return names;
}

const std::vector<std::string>& compression_names() {
  static const std::vector<std::string> names = {"none", "fp16", "bf16"};
  return names;
}

const std::vector<std::string>& zero1_names() {
  static const std::vector<std::string> names = {"none", "shares", "copied"};
  return names;
}

const std::vector<std::string>& arithmetic_names() {
  static const std::vector<std::string> names = {"native", "portable"};
  return names;
}

const std::vector<std::string>& bind_to_names() {
  static const std::vector<std::string> names = {"none", "core"};
  return names;
}

Parsed parse_options(int argc, const char* const* argv, const OwnNames& own) {
  const std::vector<std::string> words = {argv + std::min(argc, 1), argv + argc};
  Options options = usual(own);
  const flags::Parsed parsed = flags::parse(table_of(options), words, ::getenv);
  if (!parsed.text.empty()) return {.options = {}, .text = parsed.text};
  return {.options = read_with(files_of(options), words, own), .text = ""};
}

std::string options_as_flags(Options options) {
  Options unchanged = usual(options.own);
  const flags::Table table = table_of(options), defaults = table_of(unchanged);
  std::string text;
  for (std::size_t group = 0; group < table.groups.size(); ++group)
    for (std::size_t i = 0; i < table.groups[group].flags.size(); ++i) {
      const flags::Flag& flag = table.groups[group].flags[i];
      if (!flag.value.json) continue;
      const std::string value = flag.value.json();
      if (value == defaults.groups[group].flags[i].value.json()) continue;
      text += (text.empty() ? "" : " ") + flags::name_of(flag);
      if (!flag.value.word.empty()) text += " " + word_of(nlohmann::json::parse(value));
    }
  return text;
}

std::string options_json(Options options) { return flags::json(table_of(options)); }

}  // namespace lockstep::train
