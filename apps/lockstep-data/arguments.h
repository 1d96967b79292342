#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::app {

struct Option {
  std::string name;  ///< "--to"
  bool takes_value = false;
};

struct Arguments {
  std::vector<std::string> positional;
  std::map<std::string, std::string> options;  ///< given ones; a flag without value has ""

  bool has(const std::string& name) const { return options.contains(name); }
  std::string value(const std::string& name, const std::string& otherwise) const {
    return has(name) ? options.at(name) : otherwise;
  }
};

/// Tells options ("--to DIR", "--to=DIR") from the rest; -h is --help. UsageError, with `command` in front: an
/// option that is none of `known`, a value missing or too many.
Arguments sort_arguments(const std::string& command, const std::vector<std::string>& words,
                         const std::vector<Option>& known);

/// The value of a whole number option. UsageError when it is none from `least` to `most`.
int number(const std::string& command, const std::string& option, const std::string& value, int least, int most);

}  // namespace lockstep::app
