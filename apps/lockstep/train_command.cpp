#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/flags/print.h"
#include "lockstep/train/options.h"
#include "recipe_runs.h"
#include "worker_command.h"
#include "worker_place.h"

namespace lockstep::app {
namespace {

int train_as(const rendezvous::Place& place, const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"lockstep train"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  const train::Parsed parsed = train::parse_options(int(argv.size()), argv.data());
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  return run_as_worker_or_agent(place, parsed.options, "lockstep-trainer", arguments);
}

}  // namespace

int train_command(const std::vector<std::string>& arguments) {
  const rendezvous::Place place = rendezvous::place_from_environment();
  if (place.launcher == "alone")
    if (const train::Recipe* recipe = recipe_of_runs(arguments)) return run_recipe(*recipe, arguments);
  try {
    return train_as(place, arguments);
  } catch (const UsageError&) {
    let_rank_zero_speak(place);
    throw;
  }
}

}  // namespace lockstep::app
