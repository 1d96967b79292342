#include "lockstep/optim/param_groups.h"

#include <fnmatch.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::optim {
namespace {

std::string title(std::size_t group) { return "optimizer: parameter group " + std::to_string(group); }

bool fits(const std::string& name, const Parameter& parameter) {
  return name == parameter.name || ::fnmatch(name.c_str(), parameter.name.c_str(), 0) == 0;
}

bool has(const Params& params, const Parameter& parameter) {
  const auto& names = params.names();
  const auto& tensors = params.tensors();
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return fits(name, parameter); }) ||
         std::find(tensors.begin(), tensors.end(), parameter.identity) != tensors.end();
}

std::vector<std::string> names_of(const std::vector<Parameter>& parameters) {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters) names.push_back(parameter.name);
  return names;
}

// What a group names must be there: a slip would train with other options in silence.
void check_known(std::size_t group, const Params& params, const std::vector<Parameter>& parameters) {
  for (const std::string& name : params.names())
    if (std::none_of(parameters.begin(), parameters.end(), [&](const Parameter& p) { return fits(name, p); }))
      throw UsageError(title(group) + ": " + base::unknown_name("parameter", name, names_of(parameters)));
  for (std::size_t i = 0; i < params.tensors().size(); ++i) {
    const auto is_it = [&](const Parameter& p) { return p.identity == params.tensors()[i]; };
    if (std::none_of(parameters.begin(), parameters.end(), is_it))
      throw UsageError(title(group) + ": tensor " + std::to_string(i) + " is no parameter of the model");
  }
}

}  // namespace

std::vector<int> groups_of(const std::vector<Parameter>& parameters, const std::vector<Params>& groups) {
  if (groups.empty()) throw UsageError("optimizer: no parameter groups");
  std::vector<int> found;
  for (const Parameter& parameter : parameters) {
    const auto first = std::find_if(groups.begin(), groups.end(), [&](const Params& p) { return has(p, parameter); });
    if (first == groups.end())
      throw UsageError("optimizer: parameter '" + parameter.name +
                       "' is in no group; give the rest a last group {\"*\"}, or set its requires_grad to false");
    found.push_back(int(first - groups.begin()));
  }
  if (parameters.empty()) return found;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    check_known(group, groups[group], parameters);
    if (groups[group].names().empty() && groups[group].tensors().empty())
      throw UsageError(title(group) +
                       " names no parameter that is trained: the list is empty, or requires_grad is false");
    if (std::find(found.begin(), found.end(), int(group)) == found.end())
      throw UsageError(title(group) + " has no parameters: those that it names are in groups before it");
  }
  return found;
}

void refuse_other_state(int group) {
  throw UsageError(title(std::size_t(group)) +
                   ": its options need another amount of optimizer state than at the start (momentum from or to 0, "
                   "amsgrad, centered); give them when the optimizer is made");
}

void refuse_momentum() {
  throw UsageError(
      "optimizer: the schedule sets a momentum, and this optimizer was made without one; give it .momentum, or the "
      "schedule .cycle_momentum = false");
}

void refuse_schedules(std::size_t schedules, std::size_t groups) {
  throw UsageError("optimizer: " + std::to_string(schedules) + " schedules for " + std::to_string(groups) +
                   " parameter groups; give one for each, or one for all");
}

}  // namespace lockstep::optim
