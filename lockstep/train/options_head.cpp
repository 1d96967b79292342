#include "lockstep/train/options_head.h"

#include <charconv>
#include <map>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kMostOutputs = 1 << 20;

[[noreturn]] void refuse_layer(const std::string& layer) {
  throw UsageError("--head: '" + base::shown(layer) + "' is no layer: a number of outputs from 1 to " +
                   std::to_string(kMostOutputs) + ", relu, gelu, tanh or dropout=P with P from 0 to 1 expected");
}

template <class T>
bool is_number(const std::string& text, T& number) {
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && last == end && !text.empty();
}

HeadLayer layer_of(const std::string& text) {
  using Kind = HeadLayer::Kind;
  static const std::map<std::string, Kind> names = {{"relu", Kind::relu}, {"gelu", Kind::gelu}, {"tanh", Kind::tanh}};
  if (const auto found = names.find(text); found != names.end()) return {.kind = found->second};
  HeadLayer layer;
  const std::string dropout = "dropout=";
  if (text.starts_with(dropout)) {
    layer.kind = Kind::dropout;
    if (!is_number(text.substr(dropout.size()), layer.p) || !(layer.p >= 0 && layer.p <= 1)) refuse_layer(text);
    return layer;
  }
  if (!is_number(text, layer.outputs) || layer.outputs < 1 || layer.outputs > kMostOutputs) refuse_layer(text);
  return layer;
}

}  // namespace

std::vector<HeadLayer> head_layers(const std::string& text) {
  std::vector<HeadLayer> layers;
  std::istringstream words(text + ",");
  for (std::string word; std::getline(words, word, ',');) layers.push_back(layer_of(word));
  if (layers.back().kind != HeadLayer::Kind::linear)
    throw UsageError("--head " + base::shown(text) + ": it ends with a number, as many as there are classes");
  return layers;
}

}  // namespace lockstep::train
