#include "lockstep/train/additions.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/train/own_names.h"

namespace lockstep::train {
namespace {

data::SetFiles files_of(const OwnSet& set) {
  if (set.pictures) return data::SetFiles::own_pictures;
  return set.classes > 0 ? data::SetFiles::own_samples : data::SetFiles::own_numbers;
}

// `known`: those there are; the new one joins them.
void check_name(const std::string& kind, const std::string& name, std::vector<std::string>& known) {
  const auto is_part_of_one = [](char c) { return std::string_view(" \t\n,").find(c) == std::string_view::npos; };
  if (name.empty() || !std::ranges::all_of(name, is_part_of_one))
    throw UsageError("a " + kind + " of this program is called '" + base::shown(name) +
                     "': a name without spaces and commas expected");
  if (std::ranges::find(known, name) != known.end())
    throw UsageError("a " + kind + " of this program is called " + name +
                     ", as another one: a name of its own expected");
  known.push_back(name);
}

}  // namespace

OwnNames names_of(const Additions& additions, const std::string& program) {
  OwnNames names{.program = std::filesystem::path(program).filename().string()};
  std::vector<std::string> models = model_names(), sets = data::set_names();
  for (const OwnModel& model : additions.models) {
    check_name("model", model.name, models);
    if (!model.make) throw UsageError("model " + model.name + " of this program has no function that makes it");
    names.models.push_back(model.name);
  }
  for (const OwnSet& set : additions.datasets) {
    check_name("data set", set.name, sets);
    if (bool(set.samples) == bool(set.pictures))
      throw UsageError("data set " + set.name + " of this program: samples or pictures expected, one of the two");
    if (set.classes < 0 || (set.pictures && set.classes != 0))
      throw UsageError("data set " + set.name + " of this program has " + std::to_string(set.classes) +
                       " classes: " + (set.pictures ? "the pictures tell, so 0" : "0 or more") + " expected");
    names.sets.push_back({.name = set.name, .files = files_of(set), .transforms = "none"});
  }
  return names;
}

const OwnModel* find_own_model(const Additions& additions, const std::string& name) {
  const auto found = std::ranges::find(additions.models, name, &OwnModel::name);
  return found == additions.models.end() ? nullptr : &*found;
}

const OwnSet* find_own_set(const Additions& additions, const std::string& name) {
  const auto found = std::ranges::find(additions.datasets, name, &OwnSet::name);
  return found == additions.datasets.end() ? nullptr : &*found;
}

}  // namespace lockstep::train
