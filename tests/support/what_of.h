#pragma once

// What a call throws, as text.

#include <exception>
#include <functional>
#include <string>

namespace lockstep::support {

/// The message of the exception that body() ends with; empty when there is none.
inline std::string what_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::support
