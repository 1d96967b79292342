#include "lockstep/train/fine_tuning.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/python_files.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/models/registry.h"
#include "lockstep/train/make_model.h"

namespace lockstep::train {
namespace {

using checkpoint::TensorMap;

// A layer's weight and bias differ in the number of rows, and in nothing else.
bool has_other_classes(const TensorMap& ours, const TensorMap& theirs, const std::string& layer) {
  const std::string weight = layer + ".weight", bias = layer + ".bias";
  if (!theirs.contains(weight) || !theirs.contains(bias)) return false;
  const at::Tensor &w = ours.at(weight), &file_w = theirs.at(weight), &file_b = theirs.at(bias);
  const bool is_layer = file_w.dim() == 2 && file_b.dim() == 1 && file_b.size(0) == file_w.size(0);
  const bool is_float = file_w.scalar_type() == w.scalar_type() && file_b.scalar_type() == w.scalar_type();
  return is_layer && is_float && file_w.size(1) == w.size(1) && file_w.size(0) != w.size(0);
}

// --head has put layers in the place of one: fc.0, fc.2 and not the file's fc.
std::string load_all_but_head(const std::string& file, models::ImageModel& model, TensorMap theirs) {
  std::string place = models::last_layer(model);
  place.resize(place.rfind('.'));
  std::erase_if(theirs, [&](const auto& item) { return item.first.starts_with(place + "."); });
  for (const auto& [name, tensor] : checkpoint::state_dict(model))
    if (name.starts_with(place + ".")) theirs[name] = tensor;
  checkpoint::load_into(model, theirs, "file " + file);
  return place + " is not that of '" + base::shown(file) + "', but --head: it starts from the seed's weights";
}

// What the model was left with in place of the file's; empty: nothing.
std::string load_all_but_other_classes(const Options& options, models::ImageModel& model) {
  const std::string &file = options.weights, &head = options.head;
  const std::string source = "file " + file, layer = models::last_layer(model);
  const TensorMap ours = checkpoint::state_dict(model);
  std::map<std::string, std::string> others;
  TensorMap theirs = checkpoint::read_weights(file, &others, checkpoint::name_map(options.weights_map));
  checkpoint::add_missing_counts(ours, theirs);
  if (head.empty()) checkpoint::check_read(ours, theirs, others, source);
  if (!head.empty() && !theirs.contains(layer + ".weight")) return load_all_but_head(file, model, theirs);
  std::string note;
  if (has_other_classes(ours, theirs, layer)) {
    note = layer + ".weight in '" + base::shown(file) + "' is for " +
           std::to_string(theirs.at(layer + ".weight").size(0)) + " classes, the data set has " +
           std::to_string(ours.at(layer + ".weight").size(0)) + ": " + layer + " starts from the seed's weights";
    for (const char* part : {".weight", ".bias"}) theirs[layer + part] = ours.at(layer + part);
  }
  checkpoint::load_into(model, theirs, source);
  return note;
}

// Names and, for the layers, patterns: what somebody may have meant.
std::vector<std::string> patterns_for(const std::vector<std::string>& parameters) {
  std::vector<std::string> all = parameters;
  for (const std::string& name : parameters)
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      if (const std::string pattern = name.substr(0, dot) + ".*"; all.back() != pattern) all.push_back(pattern);
  return all;
}

std::string nothing_fits(const std::string& pattern, const std::vector<std::string>& parameters) {
  const std::string near = base::nearest(pattern, patterns_for(parameters));
  const std::string advice =
      near.empty() ? "they are " + parameters.front() + " … " + parameters.back() : "did you mean '" + near + "'?";
  return "--freeze '" + base::shown(pattern) + "' fits the name of no parameter: " + advice;
}

}  // namespace

StartModel make_start_model(const Options& options, const models::ImageTask& task, const Additions& additions) {
  StartModel start;
  if (options.weights.empty() || options.test_only) {
    start.model = make_model(options, task, additions);
  } else {
    Options drawn = options;
    drawn.weights.clear();
    start.model = make_model(drawn, task, additions);
    start.new_layer = load_all_but_other_classes(options, *start.model);
  }
  freeze(patterns_of(options.freeze), *start.model);
  const std::string last = models::last_layer(*start.model) + ".weight";
  if (!start.new_layer.empty() && !start.model->named_parameters()[last].requires_grad())
    start.new_layer += ", and --freeze leaves it so";
  return start;
}

std::vector<std::string> patterns_of(const std::string& text) {
  std::vector<std::string> patterns;
  std::istringstream stream(text);
  for (std::string pattern; std::getline(stream, pattern, ',');) patterns.push_back(pattern);
  return patterns;
}

void freeze(const std::vector<std::string>& patterns, torch::nn::Module& model) {
  const auto parameters = model.named_parameters();
  for (const std::string& pattern : patterns) {
    bool fits = false;
    for (const auto& item : parameters) {
      if (::fnmatch(pattern.c_str(), item.key().c_str(), 0) != 0) continue;
      fits = true;
      at::Tensor(item.value()).set_requires_grad(false);
    }
    if (!fits) throw UsageError(nothing_fits(pattern, parameters.keys()));
  }
  const auto is_trained = [](const auto& item) { return item.value().requires_grad(); };
  if (std::none_of(parameters.begin(), parameters.end(), is_trained))
    throw UsageError("--freeze " + base::join(patterns, ",") + " leaves no parameter to train");
}

}  // namespace lockstep::train
