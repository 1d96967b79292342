#include "lockstep/checkpoint/files/name_map.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::checkpoint {
namespace {

std::string quoted_name(const std::string& name) { return "'" + base::shown(name) + "'"; }

NameRule rule_of(const std::string& text, const std::string& where) {
  const std::size_t sign = text.find('=');
  const auto stars = [](const std::string& side) { return std::ranges::count(side, '*'); };
  if (sign != std::string::npos && sign > 0) {
    NameRule rule{text.substr(0, sign), text.substr(sign + 1)};
    if (stars(rule.theirs) <= 1 && stars(rule.ours) <= stars(rule.theirs)) return rule;
  }
  throw UsageError("name map: " + where + quoted_name(text) +
                   ": THEIRS=OURS expected, with at most one star, and in OURS only where THEIRS has one");
}

NameMap rules_of_file(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw UsageError("name map: " + quoted_name(path) + " is no file that can be read, and no list of THEIRS=OURS");
  NameMap map;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line.front() != '#')
      map.push_back(rule_of(line, quoted_name(path) + ", line " + std::to_string(number) + ": "));
  }
  if (map.empty()) throw UsageError("name map: " + quoted_name(path) + " has no rules, lines THEIRS=OURS");
  return map;
}

// What the star stands for; without one, nothing. No value: the name does not fit.
std::optional<std::string_view> fit(std::string_view name, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern ? std::optional(std::string_view()) : std::nullopt;
  const std::string_view front = pattern.substr(0, star), back = pattern.substr(star + 1);
  if (name.size() < front.size() + back.size() || !name.starts_with(front) || !name.ends_with(back)) return {};
  return name.substr(front.size(), name.size() - front.size() - back.size());
}

std::string spelled(const std::string& ours, std::string_view star) {
  const std::size_t place = ours.find('*');
  return place == std::string::npos ? ours : ours.substr(0, place) + std::string(star) + ours.substr(place + 1);
}

}  // namespace

NameMap name_map(const std::string& text) {
  if (text.empty()) return {};
  if (text.find('=') == std::string::npos) return rules_of_file(text);
  NameMap map;
  std::istringstream stream(text);
  for (std::string rule; std::getline(stream, rule, ',');) map.push_back(rule_of(rule, ""));
  return map;
}

std::map<std::string, std::string> renamed(const std::vector<std::string>& names, const NameMap& map,
                                           const std::string& path) {
  std::map<std::string, std::string> found, whose;
  std::vector<bool> fits_any(map.size());
  for (const std::string& name : names) {
    std::string ours = name;
    bool is_taken = false;
    for (std::size_t i = 0; i < map.size(); ++i) {
      const auto star = fit(name, map[i].theirs);
      fits_any[i] = fits_any[i] || star;
      if (!star || is_taken) continue;
      is_taken = true;
      ours = spelled(map[i].ours, *star);
    }
    if (ours.empty()) continue;
    if (const auto [other, is_new] = whose.emplace(ours, name); !is_new)
      throw UsageError("name map: " + quoted_name(other->second) + " and " + quoted_name(name) + " of " +
                       quoted_name(path) + " would both be " + quoted_name(ours));
    found[name] = ours;
  }
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (fits_any[i]) continue;
    const std::string near = base::nearest(map[i].theirs, names);
    throw UsageError("name map: " + quoted_name(map[i].theirs) + " fits no tensor of " + quoted_name(path) +
                     (near.empty() ? "" : "; did you mean " + quoted_name(near) + "?"));
  }
  if (found.empty() && !names.empty()) throw UsageError("name map: no tensor of " + quoted_name(path) + " is left");
  return found;
}

}  // namespace lockstep::checkpoint
