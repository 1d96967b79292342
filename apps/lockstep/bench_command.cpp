#include <unistd.h>

#include <cstdio>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::app {
namespace {

constexpr const char* kHelp =
    "usage: lockstep bench NAME [arguments]\n\n"
    "measurements:\n"
    "  input    how many pictures a second the input path makes ready, alone or beside torchvision\n\n"
    "lockstep bench NAME --help tells more.\n";

}  // namespace

int bench_command(const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw UsageError("bench: nothing to measure given: lockstep bench input");
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h") return std::fputs(kHelp, stdout) < 0 ? kExitFailure : kExitDone;
  if (name != "input") throw UsageError("bench: " + base::unknown_name("measurement", name, {"input"}));
  const std::string program = own_folder() + "/lockstep-bench-input";
  if (access(program.c_str(), X_OK) != 0) {
    throw UsageError("bench: '" + program + "' is missing: build lockstep with LOCKSTEP_BENCHMARKS=ON");
  }
  replace_by(program, {arguments.begin() + 1, arguments.end()});
}

}  // namespace lockstep::app
