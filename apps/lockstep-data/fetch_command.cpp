#include <unistd.h>

#include <cstdio>

#include "arguments.h"
#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/fetch/fetch.h"

namespace lockstep::app {
namespace {

constexpr const char* kHelp =
    "usage: lockstep data fetch SET [options]\n\n"
    "Downloads a data set from its well-known addresses, checks sizes and SHA-256, and unpacks it to\n"
    "what --data-path of lockstep train reads. SET: mnist, fashion-mnist, cifar10, cifar100.\n"
    "What was interrupted is gone on with; what is there already, and whole, is left alone.\n\noptions:\n"
    "  --to DIR       the folder to put it into (default data/SET)\n"
    "  --mirror URL   the address of the folder to download from, instead of the well-known ones;\n"
    "                 the checksums stay the same\n"
    "  --timeout S    give up on an address that sends nothing for S seconds (default 30)\n"
    "  --quiet        say nothing unless something fails\n"
    "  -h, --help     this text\n";

constexpr int kMostSeconds = 86'400;

}  // namespace

int fetch_command(const std::vector<std::string>& words) {
  const std::string command = "data fetch";
  const Arguments arguments = sort_arguments(
      command, words, {{"--to", true}, {"--mirror", true}, {"--timeout", true}, {"--quiet", false}, {"--help", false}});
  if (arguments.has("--help")) return std::fputs(kHelp, stdout) < 0 ? kExitFailure : kExitDone;
  if (arguments.positional.size() != 1) {
    throw UsageError(command + ": one data set expected (" + base::join(data::recipe_names()) + "), " +
                     std::to_string(arguments.positional.size()) + " given");
  }
  const std::string& name = arguments.positional[0];
  data::Recipe recipe = data::find_recipe(name);
  if (arguments.has("--mirror")) recipe = with_mirror(std::move(recipe), arguments.value("--mirror", ""));
  data::Patience patience;
  if (arguments.has("--timeout")) {
    patience.stall =
        std::chrono::seconds(number(command, "--timeout", arguments.value("--timeout", ""), 1, kMostSeconds));
    patience.connect = std::min(patience.connect, patience.stall);
    patience.lock = std::max(patience.lock, 3 * patience.stall);
  }
  const std::string folder = arguments.value("--to", "data/" + name);
  const bool quiet = arguments.has("--quiet");
  data::DownloadProgress progress(quiet ? -1 : STDERR_FILENO);
  const bool done = fetch(recipe, folder, patience, progress);
  const char* state = done ? "whole" : "already there, whole,";
  if (!quiet) std::printf("%s: %s in '%s'\n", name.c_str(), state, base::shown(folder).c_str());
  return kExitDone;
}

}  // namespace lockstep::app
