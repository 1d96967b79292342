#include "benchmarks/support/output.h"

#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"

namespace lockstep::bench {

std::string text(const char* format, ...) {
  char buffer[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream file(path);
  if (!(file << content << std::flush)) throw_errno("benchmark: cannot write " + path);
}

std::string with_plot(const std::string& path, const std::string& page) {
  const std::size_t end = page.find('\n');
  const std::string title = page.substr(2, end - 2);  // "# Title"
  return page.substr(0, end) + "\n\n![" + title + "](" + std::filesystem::path(path).filename().string() + ".svg)" +
         page.substr(end);
}

std::string command_line(const std::string& name, int argc, const char* const* argv) {
  std::string command = name;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    command += " " + (argument.find(' ') == std::string::npos ? argument : "'" + argument + "'");
  }
  return command;
}

}  // namespace lockstep::bench
