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
constexpr const char* kAbout = "about";  // the one key that is no flag

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

flags::FlagFile flags_of(const Recipe& recipe) {
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
  return flags::read_flag_file(std::string(std::istreambuf_iterator<char>(stream), {}), name);
}

}  // namespace lockstep::train
