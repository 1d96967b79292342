#pragma once

// Environment variables as launchers set them.

#include <map>
#include <string>

#include "lockstep/rendezvous/environment.h"

namespace lockstep::rendezvous {

using Variables = std::map<std::string, std::string>;

inline Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

/// Reads from `variables`, which must outlive it.
inline GetEnv reader_of(const Variables& variables) {
  return [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

}  // namespace lockstep::rendezvous
