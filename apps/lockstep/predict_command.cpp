#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/flags/print.h"
#include "lockstep/train/options_predict.h"
#include "worker_command.h"
#include "worker_place.h"

namespace lockstep::app {
namespace {

int predict_as(const rendezvous::Place& place, const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"lockstep predict"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  const train::ParsedPredict parsed = train::parse_predict_options(int(argv.size()), argv.data());
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  return run_as_worker_or_agent(place, parsed.options.run, "lockstep-predictor", arguments);
}

}  // namespace

int predict_command(const std::vector<std::string>& arguments) {
  const rendezvous::Place place = rendezvous::place_from_environment();
  try {
    return predict_as(place, arguments);
  } catch (const UsageError&) {
    let_rank_zero_speak(place);
    throw;
  }
}

}  // namespace lockstep::app
