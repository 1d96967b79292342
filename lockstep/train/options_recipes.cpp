#include "lockstep/train/options_recipes.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep_recipes.h"

namespace lockstep::train {
namespace {

constexpr std::uintmax_t kLargestConfig = 1'000'000;
// The keys that are no flags.
constexpr const char* kAbout = "about";
constexpr const char* kRuns = "runs";
constexpr const char* kMethod = "method";  // of a run

std::vector<Recipe> all_recipes() {
  std::vector<Recipe> all;
  for (const auto& [name, text] : kRecipeFiles)
    all.push_back({.name = name, .about = nlohmann::json::parse(text).at(kAbout), .text = text});
  return all;
}

}  // namespace

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = all_recipes();
  return all;
}

const Recipe& find_recipe(const std::string& name) {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  throw UsageError(base::unknown_name("recipe", name, names));
}

std::vector<RecipeRun> runs_of(const Recipe& recipe) {
  const nlohmann::json all = nlohmann::json::parse(recipe.text);
  std::vector<RecipeRun> runs;
  if (!all.contains(kRuns)) return runs;
  for (const nlohmann::json& own : all.at(kRuns)) {
    nlohmann::json flags = all;
    flags.erase(kAbout);
    flags.erase(kRuns);
    for (const auto& [key, value] : own.items())
      if (key != kMethod) flags[key] = value;
    runs.push_back({.method = own.at(kMethod), .text = flags.dump()});
  }
  return runs;
}

flags::FlagFile flags_of(const Recipe& recipe) {
  if (!runs_of(recipe).empty())
    throw UsageError("--recipe " + recipe.name + " is several runs, one after the other: lockstep train starts them, " +
                     "no other launcher");
  flags::FlagFile file = flags::read_flag_file(recipe.text, "recipe " + recipe.name);
  std::erase_if(file.values, [](const auto& value) { return value.first == kAbout; });
  return file;
}

flags::FlagFile read_config(const std::string& path) {
  const std::string name = "--config '" + base::shown(path) + "'";
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) throw UsageError(name + ": " + error.message());
  if (bytes > kLargestConfig)
    throw UsageError(name + " has " + std::to_string(bytes) + " bytes: no file of flags, which has at most " +
                     std::to_string(kLargestConfig));
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw UsageError(name + ": " + std::strerror(errno));
  flags::FlagFile file = flags::read_flag_file(std::string(std::istreambuf_iterator<char>(stream), {}), name);
  // What `lockstep recipes NAME` prints may be the beginning of one's own.
  std::erase_if(file.values, [](const auto& value) { return value.first == kAbout; });
  return file;
}

}  // namespace lockstep::train
