#pragma once

#include <cstdlib>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::testing {

/// Whether `use` takes its input. Refusing it is a UsageError of one line; whatever else it throws ends the fuzzer.
template <class Use>
bool accepted(Use use) {
  try {
    use();
    return true;
  } catch (const UsageError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
    return false;
  }
}

}  // namespace lockstep::testing
