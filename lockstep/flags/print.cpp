#include "lockstep/flags/print.h"

#include <unistd.h>

#include <cstdio>

#include "lockstep/base/terminal.h"
#include "lockstep/flags/wrap.h"

namespace lockstep::flags {

bool print_help(const std::string& text) {
  const std::string lines = wrapped(text, std::size_t(base::terminal_columns(STDOUT_FILENO)));
  return std::fputs(lines.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
}

}  // namespace lockstep::flags
