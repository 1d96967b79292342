// lockstep: starts training jobs. Dispatch only, as git does; no libtorch.

#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "all_commands.h"
#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/standard_streams.h"
#include "lockstep/flags/print.h"

namespace lockstep::app {
namespace {

int dispatch(const std::vector<std::string>& words) {
  if (words.empty()) throw UsageError("no command given: lockstep run, lockstep train, or lockstep --help");
  const std::string& name = words.front();
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (name == "--help" || name == "-h" || name == "help") {
    AllOptions options;
    return flags::print_help(help(all_commands(options))) ? kExitDone : kExitFailure;
  }
  if (name == "--version") return std::puts("lockstep " LOCKSTEP_VERSION) < 0 ? kExitFailure : kExitDone;
  if (name == "run") return run_command(rest);
  if (name == "launch") return launch_command(rest);
  if (name == "train") return train_command(rest);
  if (name == "predict") return predict_command(rest);
  if (name == "report") return report_command(rest);
  if (name == "trace") return trace_command(rest);
  if (name == "recipes") return recipes_command(rest);
  if (name == "secret") return secret_command(rest);
  if (name == "data") replace_by(own_folder() + "/lockstep-data", rest);
  if (name == "checkpoint") replace_by(checkpoint_program(), rest);
  if (name == "env") return env_command(rest);
  if (name == "doctor") return doctor_command(rest);
  if (name == "bench") return bench_command(rest);
  if (name == "completion") return completion_command(rest);
  if (name == "man") return man_command(rest);
  if (name.starts_with("-")) throw UsageError("unknown option " + name + ": lockstep takes --help and --version");
  return external_command(name, rest);
}

}  // namespace
}  // namespace lockstep::app

int main(int argc, char** argv) {
  try {
    lockstep::base::open_standard_streams();
    return lockstep::app::dispatch({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    lockstep::base::tell(STDERR_FILENO, "lockstep: error: " + std::string(error.what()) + "\n");
    return lockstep::exit_code(error);
  }
}
