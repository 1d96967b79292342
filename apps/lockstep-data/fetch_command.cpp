#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "apps/lockstep-data/data_commands.h"
#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/fetch/fetch.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/print.h"

namespace lockstep::app {
namespace {

data::Patience patience_of(std::chrono::seconds stall) {
  data::Patience patience{.stall = stall};
  patience.connect = std::min(patience.connect, patience.stall);
  patience.lock = std::max(patience.lock, 3 * patience.stall);
  return patience;
}

}  // namespace

int fetch_command(const std::vector<std::string>& words) {
  FetchOptions options;
  const flags::Parsed parsed = flags::parse(fetch_table(options), words);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  if (parsed.operands.size() != 1) {
    throw UsageError("data fetch: one data set expected (" + base::join(data::fetched_set_names()) + "), " +
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
