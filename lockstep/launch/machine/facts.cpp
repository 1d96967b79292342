#include "lockstep/launch/machine/facts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/text.h"

namespace lockstep::launch {
namespace {

// Names that end in '*' stand for all that begin so.
constexpr std::array kJobVariables = {"OMP_*",          "KMP_*",      "GOMP_*",          "MKL_*",
                                      "ONEDNN_*",       "DNNL_*",     "LOCKSTEP_*",      "PET_*",
                                      "TORCHELASTIC_*", "NCCL_*",     "GLOO_*",          "TORCH_NCCL_*",
                                      "MALLOC_*",       "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"};

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return (static_cast<unsigned char>(c) < ' ') || c == '\x7f'; }, '?');
  return text;
}

}  // namespace

std::string facts_as_text(const std::vector<Section>& sections) {
  std::string text;
  for (const Section& section : sections) {
    text += (text.empty() ? "" : "\n") + section.title + "\n";
    for (const Fact& fact : section.facts) text += "  " + printable(fact.name) + ": " + printable(fact.value) + "\n";
    if (section.facts.empty()) text += "  none\n";
  }
  return text;
}

std::string facts_as_json(const std::vector<Section>& sections) {
  using Json = nlohmann::ordered_json;
  Json root = Json::object();
  for (const Section& section : sections) {
    Json& facts = root[section.title] = Json::object();
    for (const Fact& fact : section.facts) facts[fact.name] = fact.value;
  }
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string unknown(const std::string& why) { return "unknown (" + why + ")"; }

std::optional<std::string> line_value(std::string_view text, std::string_view key) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && trimmed(line.substr(0, colon)) == key) return trimmed(line.substr(colon + 1));
  }
  return std::nullopt;
}

std::optional<std::string> size_of_line(std::string_view text, std::string_view key) {
  const auto value = line_value(text, key);
  if (!value || !value->ends_with(" kB")) return std::nullopt;
  std::uint64_t kib = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), kib);
  if (error != std::errc() || *end != ' ') return std::nullopt;
  return base::size_text(kib << 10);
}

std::optional<std::string> instruction_sets(std::string_view cpuinfo) {
  const auto flags = line_value(cpuinfo, "flags");
  if (!flags) return std::nullopt;
  const std::vector<std::string> that_matter = {"avx2",        "fma",      "avx512f",  "avx512_vnni",
                                                "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"};
  std::vector<std::string> found;
  for (const std::string& name : that_matter)
    if ((" " + *flags + " ").find(" " + name + " ") != std::string::npos) found.push_back(name);
  return found.empty() ? "none of " + base::join(that_matter) : base::join(found);
}

std::optional<std::string> bracketed(std::string_view text) {
  const std::size_t open = text.find('[');
  const std::size_t close = text.find(']', std::min(open, text.size()));
  if (close == std::string_view::npos) return std::nullopt;
  return std::string(text.substr(open + 1, close - open - 1));
}

std::optional<std::string> distribution(std::string_view os_release) {
  std::istringstream lines{std::string(os_release)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("PRETTY_NAME=")) continue;
    std::string name = trimmed(line.substr(12));
    std::erase(name, '"');
    return name;
  }
  return std::nullopt;
}

std::optional<std::string> nvidia_driver(std::string_view version) {
  const std::size_t at = version.find("Kernel Module");
  std::istringstream words{std::string(version.substr(std::min(at, version.size())))};
  for (std::string word; words >> word;)
    if (std::isdigit(static_cast<unsigned char>(word.front())) && word.find('.') != std::string::npos) return word;
  return std::nullopt;
}

std::string without_newline(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool changes_a_job(std::string_view name) {
  return std::ranges::any_of(kJobVariables, [&](std::string_view known) {
    return known.ends_with('*') ? name.starts_with(known.substr(0, known.size() - 1)) : name == known;
  });
}

bool is_secret(std::string_view name) {
  std::string upper(name);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return char(std::toupper(c)); });
  return std::ranges::any_of(std::array{"TOKEN", "SECRET", "KEY", "PASSWORD"},
                             [&](const char* word) { return upper.find(word) != std::string::npos; });
}

std::vector<Fact> job_variables(const std::vector<std::string>& environment) {
  std::vector<Fact> found;
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || !changes_a_job(entry.substr(0, equals))) continue;
    const std::string name = entry.substr(0, equals);
    found.push_back({name, is_secret(name) ? "(hidden)" : entry.substr(equals + 1)});
  }
  std::ranges::sort(found, {}, &Fact::name);
  return found;
}

}  // namespace lockstep::launch
