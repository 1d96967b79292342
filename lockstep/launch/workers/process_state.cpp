#include "lockstep/launch/workers/process_state.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace lockstep::launch {
namespace {

std::string text_of(pid_t pid, const char* file) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/" + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool kill_is_pending(const std::string& status) {
  std::istringstream lines(status);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("SigPnd:") || line.starts_with("ShdPnd:"))
      if ((std::strtoull(line.c_str() + 7, nullptr, 16) >> (SIGKILL - 1) & 1) != 0) return true;
  return false;
}

}  // namespace

// The name, in parentheses, may hold anything, parentheses too: the fields begin behind the last one.
ProcessState parse_process_state(const std::string& stat, const std::string& status) {
  ProcessState state;
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return state;
  constexpr unsigned kExiting = 0x4;  // PF_EXITING
  unsigned flags = 0;
  std::sscanf(stat.c_str() + name_end + 2, "%c %*d %*d %*d %*d %*d %u", &state.letter, &flags);
  state.exiting = (flags & kExiting) != 0;
  state.must_die = kill_is_pending(status);
  return state;
}

ProcessState process_state(pid_t pid) { return parse_process_state(text_of(pid, "stat"), text_of(pid, "status")); }

}  // namespace lockstep::launch
