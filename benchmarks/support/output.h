#pragma once

// How reports are written.

#include <string>

namespace lockstep::bench {

/// printf into a string, cut after 511 characters.
__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...);

/// Writes or replaces a file. Error when that fails.
void write_file(const std::string& path, const std::string& content);

/// A report's page with the plot that scripts/bench draws from the numbers (PATH.svg), below its title.
std::string with_plot(const std::string& path, const std::string& page);

/// The command that repeats a measurement: `name` and the arguments, quoted where they hold blanks.
std::string command_line(const std::string& name, int argc, const char* const* argv);

}  // namespace lockstep::bench
