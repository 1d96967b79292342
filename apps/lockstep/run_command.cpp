#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/agent.h"
#include "lockstep/launch/dry_run.h"
#include "lockstep/launch/options.h"
#include "worker_place.h"

namespace lockstep::app {
namespace {

// Without LOCAL_WORLD_SIZE, which every launcher of workers sets, RANK and its like are a cluster's words about this
// node (Kubeflow's and others' for a job of one node too). As torchrun, we take no notice; the workers get their own.
const char* variable_of_a_worker(const char* name) {
  const std::string_view word = name;
  const bool of_a_node = word == "RANK" || word == "WORLD_SIZE" || word == "LOCAL_RANK";
  return of_a_node && std::getenv("LOCAL_WORLD_SIZE") == nullptr ? nullptr : std::getenv(name);
}

// A launcher inside a launcher would make a job of its own per worker.
void refuse_to_nest() {
  const rendezvous::Place place = rendezvous::place_from_environment(variable_of_a_worker);
  if (!has_torch_contract(place) && place.world_size == 1) return;
  let_rank_zero_speak(place);
  throw UsageError("run: this is rank " + std::to_string(place.rank) + " of a job that " + place.launcher +
                   " has started already: start the program without lockstep run");
}

int print(const std::string& text) { return std::fputs(text.c_str(), stdout) < 0 ? kExitFailure : kExitDone; }

// Python would say so itself, but once per worker.
int check_script(const launch::Options& options) {
  const std::string& script = options.typed.front();
  if (options.module || !script.ends_with(".py") || access(script.c_str(), R_OK) == 0) return 0;
  std::fprintf(stderr, "lockstep: cannot read '%s': %s\n", script.c_str(), std::strerror(errno));
  return errno == ENOENT ? launch::kExitNotFound : launch::kExitNotExecutable;
}

int run_as(launch::Dialect dialect, const std::vector<std::string>& arguments) {
  const launch::Options options = launch::parse_options(dialect, arguments, ::getenv);
  if (options.help) return print(launch::help(dialect));
  refuse_to_nest();
  const launch::Machine machine = launch::this_machine();
  const launch::Plan plan = launch::make_plan(options, dialect, machine);
  const launch::Environment inherited = launch::this_environment();
  if (options.dry_run) return print(launch::describe_plan(plan, inherited, machine.cores));
  if (const int code = check_script(options); code != 0) return code;
  std::fputs(launch::threads_note(plan, inherited, machine.cores).c_str(), stderr);
  return launch::run_agent(plan);
}

}  // namespace

int run_command(const std::vector<std::string>& arguments) { return run_as(launch::Dialect::run, arguments); }

int launch_command(const std::vector<std::string>& arguments) { return run_as(launch::Dialect::launch, arguments); }

}  // namespace lockstep::app
