#include "arguments.h"

#include <algorithm>
#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::app {
namespace {

const Option& find_option(const std::string& command, const std::string& name, const std::vector<Option>& known) {
  const auto found = std::ranges::find(known, name, &Option::name);
  if (found != known.end()) return *found;
  std::vector<std::string> names;
  names.reserve(known.size());
  for (const Option& option : known) names.push_back(option.name);
  throw UsageError(command + ": " + base::unknown_name("option", name, names));
}

}  // namespace

Arguments sort_arguments(const std::string& command, const std::vector<std::string>& words,
                         const std::vector<Option>& known) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("-") || word == "-") {
      arguments.positional.push_back(word);
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string name = word == "-h" ? "--help" : word.substr(0, equals);
    const bool takes_value = find_option(command, name, known).takes_value;
    const bool inside = equals != std::string::npos;
    if (inside && !takes_value) throw UsageError(command + ": " + name + " takes no value: '" + word + "'");
    if (takes_value && !inside && i + 1 == words.size()) throw UsageError(command + ": " + name + " needs a value");
    arguments.options[name] = inside ? word.substr(equals + 1) : takes_value ? words[++i] : "";
  }
  return arguments;
}

int number(const std::string& command, const std::string& option, const std::string& value, int least, int most) {
  int found = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, found);
  if (error == std::errc() && stop == end && found >= least && found <= most) return found;
  throw UsageError(command + ": " + option + " '" + value + "': an integer from " + std::to_string(least) + " to " +
                   std::to_string(most) + " expected");
}

}  // namespace lockstep::app
