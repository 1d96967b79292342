#include "lockstep/launch/workers/refusal.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lockstep::launch {
namespace {

int code_of(int error) { return error == ENOENT || error == ENOTDIR ? kExitNotFound : kExitNotExecutable; }

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

}  // namespace

Refusal cannot_execute(const std::string& program, int error) {
  std::string text = "cannot execute '" + program + "': " + std::strerror(error);
  if (error == ENOENT && program.find('/') == std::string::npos)
    text += exists(program) ? " in PATH (write ./" + program + " for the one in this folder)" : " in PATH";
  else if (error == ENOENT && exists(program))
    text += " (the interpreter in its first line is missing)";
  return {.code = code_of(error), .text = text};
}

Refusal cannot_read(const std::string& script, int error) {
  return {.code = code_of(error), .text = "cannot read '" + script + "': " + std::strerror(error)};
}

}  // namespace lockstep::launch
