#pragma once

#include <string>

namespace lockstep::flags {

/// Writes a help text to standard output: wrapped to the terminal's width where that is one, else as it is: what a
/// program reads does not depend on a window. False when it could not be written.
[[nodiscard]] bool print_help(const std::string& text);

}  // namespace lockstep::flags
