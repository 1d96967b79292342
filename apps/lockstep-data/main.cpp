// lockstep-data: data sets on disk, as `lockstep data`. No libtorch. A program of its own because of libcurl.

#include <csignal>
#include <cstdio>
#include <new>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/standard_streams.h"
#include "lockstep/base/text.h"

namespace lockstep::app {
namespace {

constexpr const char* kHelp =
    "usage: lockstep data COMMAND [arguments]\n\n"
    "commands:\n"
    "  fetch    download a well-known data set\n"
    "  inspect  say what a folder or file holds, and find damaged files\n\n"
    "lockstep data COMMAND --help tells more.\n";

int dispatch(const std::vector<std::string>& words) {
  if (words.empty()) throw UsageError("data: no command given: lockstep data fetch, or lockstep data inspect");
  const std::string& name = words.front();
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (name == "--help" || name == "-h" || name == "help")
    return std::fputs(kHelp, stdout) < 0 ? kExitFailure : kExitDone;
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
    std::fputs("lockstep: error: more memory needed than there is\n", stderr);
    return lockstep::kExitFailure;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: error: %s\n", lockstep::base::shown(error.what()).c_str());
    return lockstep::exit_code(error);
  }
}
