#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/fetch/fetch.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/values.h"

namespace lockstep::app {
namespace {

constexpr int kMostSeconds = 86'400;

struct FetchOptions {
  std::string folder;
  std::string mirror;
  int stall = int(data::Patience{}.stall.count());
  bool quiet = false;
};

flags::Table table_of(FetchOptions& options) {
  return {.usage = "lockstep data fetch SET [options]",
          .about =
              "Downloads a data set from its well-known addresses, checks sizes and SHA-256, and unpacks it to\n"
              "what --data-path of lockstep train reads. SET: mnist, fashion-mnist, cifar10, cifar100.\n"
              "What was interrupted is gone on with; what is there already, and whole, is left alone.\n",
          .groups = {{"",
                      {{"--to", flags::text(options.folder, "DIR"), "The folder to put it into", "data/SET"},
                       {"--mirror", flags::text(options.mirror, "URL"),
                        "The folder to download from; the checksums stay the same", "the well-known addresses"},
                       {"--timeout", flags::integer(options.stall, 1, kMostSeconds),
                        "Give up on an address that sends nothing for N seconds"},
                       {"--quiet", flags::on(options.quiet), "Say nothing unless something fails"}}}},
          .prefix = "data fetch: ",
          .operands = flags::Operands::some};
}

data::Patience patience_of(std::chrono::seconds stall) {
  data::Patience patience{.stall = stall};
  patience.connect = std::min(patience.connect, patience.stall);
  patience.lock = std::max(patience.lock, 3 * patience.stall);
  return patience;
}

}  // namespace

int fetch_command(const std::vector<std::string>& words) {
  FetchOptions options;
  const flags::Parsed parsed = flags::parse(table_of(options), words);
  if (!parsed.text.empty()) return std::fputs(parsed.text.c_str(), stdout) < 0 ? kExitFailure : kExitDone;
  if (parsed.operands.size() != 1) {
    throw UsageError("data fetch: one data set expected (" + base::join(data::recipe_names()) + "), " +
                     std::to_string(parsed.operands.size()) + " given");
  }
  const std::string& name = parsed.operands[0];
  data::Recipe recipe = data::find_recipe(name);
  if (parsed.given("--mirror")) recipe = with_mirror(std::move(recipe), options.mirror);
  const std::string folder = parsed.given("--to") ? options.folder : "data/" + name;
  data::DownloadProgress progress(options.quiet ? -1 : STDERR_FILENO);
  const bool done = fetch(recipe, folder, patience_of(std::chrono::seconds(options.stall)), progress);
  const char* state = done ? "whole" : "already there, whole,";
  if (!options.quiet) std::printf("%s: %s in '%s'\n", name.c_str(), state, base::shown(folder).c_str());
  return kExitDone;
}

}  // namespace lockstep::app
