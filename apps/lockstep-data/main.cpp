// lockstep-data: data sets on disk, as `lockstep data`. No libtorch. A program of its own because of libcurl.

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <new>

#include "apps/lockstep-data/data_commands.h"
#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/standard_streams.h"
#include "lockstep/base/text.h"
#include "lockstep/flags/print.h"

namespace lockstep::app {
namespace {

int dispatch(const std::vector<std::string>& words) {
  if (words.empty()) throw UsageError("data: no command given: lockstep data fetch, or lockstep data inspect");
  const std::string& name = words.front();
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (name == "--help" || name == "-h" || name == "help") {
    DataOptions options;
    return flags::print_help(help(data_commands(options))) ? kExitDone : kExitFailure;
  }
  if (name == "fetch") return fetch_command(rest);
  if (name == "inspect") return inspect_command(rest);
  throw UsageError("data: " + base::unknown_name("command", name, {"fetch", "inspect", "help"}));
}

}  // namespace
}  // namespace lockstep::app

int main(int argc, char** argv) {
  try {
    lockstep::base::open_standard_streams();
    std::signal(SIGPIPE, SIG_IGN);  // a write that fails says so by its result
    std::signal(SIGXFSZ, SIG_IGN);
    const int code = lockstep::app::dispatch({argv + 1, argv + argc});
    return std::fflush(stdout) == 0 ? code : lockstep::kExitFailure;
  } catch (const std::bad_alloc&) {
    lockstep::base::tell(STDERR_FILENO, "lockstep: error: more memory needed than there is\n");
    return lockstep::kExitFailure;
  } catch (const std::exception& error) {
    lockstep::base::tell(STDERR_FILENO, "lockstep: error: " + lockstep::base::shown(error.what()) + "\n");
    return lockstep::exit_code(error);
  }
}
