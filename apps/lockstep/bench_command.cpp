#include <unistd.h>

#include <algorithm>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/flags/print.h"

namespace lockstep::app {

flags::Command bench_commands() {
  return {
      .name = "bench",
      .summary = "measure collectives, training steps, launches or the input",
      .table = {.usage = "lockstep bench COMMAND [arguments]", .after = "lockstep bench COMMAND --help tells more.\n"},
      .commands = {{"comm", "collectives on ranks of this machine, 4 B to 256 MiB"},
                   {"step", "seconds of whole training steps, and where they go"},
                   {"launch", "from a command to its workers' end, and to the first training step"},
                   {"input", "pictures that the input path makes ready, alone or beside torchvision"}}};
}

int bench_command(const std::vector<std::string>& arguments) {
  const flags::Command bench = bench_commands();
  const std::vector<std::string> names = names_of(bench);
  if (arguments.empty()) throw UsageError("bench: nothing to measure given: lockstep bench " + base::join(names, "|"));
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h") return flags::print_help(help(bench)) ? kExitDone : kExitFailure;
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw UsageError("bench: " + base::unknown_name("measurement", name, names));
  const std::string program = own_folder() + "/lockstep-bench-" + name;
  if (access(program.c_str(), X_OK) != 0) {
    throw UsageError("bench: '" + program + "' is missing: build lockstep with LOCKSTEP_BENCHMARKS=ON");
  }
  replace_by(program, {arguments.begin() + 1, arguments.end()});
}

}  // namespace lockstep::app
