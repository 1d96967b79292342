#pragma once

// Environment variables of launchers and schedulers, with the messages for what is wrong with them.

#include <limits>
#include <optional>
#include <string>

#include "lockstep/rendezvous/environment.h"

namespace lockstep::rendezvous {

/// Reads the variables of one launcher; every message names it. Refers to `get`, which outlives it. An empty variable
/// counts as not set.
class VariableReader {
 public:
  VariableReader(const GetEnv& get, std::string launcher);

  std::optional<std::string> text(const char* name) const;
  bool has(const char* name) const { return text(name).has_value(); }

  /// Throws UsageError when it is not set.
  std::string required_text(const char* name) const;

  /// A number in [low, high]. Throws UsageError for anything else.
  int number(const char* name, int low, int high = std::numeric_limits<int>::max()) const;
  int number_or(const char* name, int otherwise) const { return has(name) ? number(name, 0) : otherwise; }

 private:
  const GetEnv& get_;
  std::string launcher_;
};

}  // namespace lockstep::rendezvous
