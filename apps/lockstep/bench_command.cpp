#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::app {
namespace {

constexpr const char* kHelp =
    "usage: lockstep bench NAME [arguments]\n\n"
    "measurements:\n"
    "  comm     collectives on ranks of this machine, 4 B to 256 MiB\n"
    "  step     seconds of whole training steps, and where they go\n"
    "  launch   from a command to its workers' end, and to the first training step\n"
    "  input    how many pictures a second the input path makes ready, alone or beside torchvision\n\n"
    "lockstep bench NAME --help tells more.\n";

const std::vector<std::string> kNames = {"comm", "step", "launch", "input"};

}  // namespace

int bench_command(const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw UsageError("bench: nothing to measure given: lockstep bench " + base::join(kNames, "|"));
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h") return std::fputs(kHelp, stdout) < 0 ? kExitFailure : kExitDone;
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end())
    throw UsageError("bench: " + base::unknown_name("measurement", name, kNames));
  const std::string program = own_folder() + "/lockstep-bench-" + name;
  if (access(program.c_str(), X_OK) != 0) {
    throw UsageError("bench: '" + program + "' is missing: build lockstep with LOCKSTEP_BENCHMARKS=ON");
  }
  replace_by(program, {arguments.begin() + 1, arguments.end()});
}

}  // namespace lockstep::app
