#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/flags/print.h"
#include "lockstep/launch/agent/agent.h"
#include "lockstep/launch/dry_run.h"
#include "lockstep/launch/flags/nodes.h"
#include "lockstep/launch/flags/options.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/rendezvous/schedulers.h"
#include "worker_place.h"

namespace lockstep::app {
namespace {

// A launcher inside a launcher would make a job of its own per worker. RANK and its like alone say
// little: platforms set them for containers, and torchrun takes no notice of them either. A task of a scheduler that is
// to say the number of nodes is no worker: there is one for each node, or resolve_auto_nodes() refuses them.
void refuse_to_nest(bool is_task) {
  const bool a_worker = std::getenv("LOCKSTEP_SEGMENT") != nullptr || std::getenv("TORCHELASTIC_RUN_ID") != nullptr;
  if (is_task && !a_worker) return;
  const rendezvous::Place place = rendezvous::place_from_environment([&](const char* name) -> const char* {
    const bool torch_contract =
        std::string_view(name).ends_with("RANK") || std::string_view(name).ends_with("WORLD_SIZE");
    return torch_contract && !std::string_view(name).starts_with("OMPI_") && !a_worker ? nullptr : std::getenv(name);
  });
  if (!has_torch_contract(place) && place.world_size == 1) return;
  let_rank_zero_speak(place);
  throw UsageError("run: this is rank " + std::to_string(place.rank) + " of a job that " + place.launcher +
                   " has started already: start the program without lockstep run");
}

int print(const std::string& text) {
  return std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? kExitFailure : kExitDone;
}

int run_as(launch::Dialect dialect, const std::vector<std::string>& arguments) {
  launch::Parsed parsed = launch::parse_options(dialect, arguments, ::getenv);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  launch::Options& options = parsed.options;
  refuse_to_nest(options.nodes.by_scheduler);
  if (options.nodes.by_scheduler)
    launch::settle_nodes(options, rendezvous::resolve_auto_nodes(rendezvous::find_allocation()));
  const launch::Machine machine = launch::this_machine();
  launch::Plan plan = launch::make_plan(options, dialect, machine);
  plan.state_saver = checkpoint_program();
  const launch::Environment inherited = launch::this_environment();
  if (options.dry_run) return print(launch::describe_plan(plan, inherited, machine.cores));
  std::signal(SIGPIPE, SIG_IGN);  // the job is not over when nobody reads what the launcher says
  base::Outlet::console(STDERR_FILENO).offer(launch::threads_note(plan, inherited, machine.cores));
  return launch::run_agent(plan);
}

}  // namespace

int run_command(const std::vector<std::string>& arguments) { return run_as(launch::Dialect::run, arguments); }

int launch_command(const std::vector<std::string>& arguments) { return run_as(launch::Dialect::launch, arguments); }

}  // namespace lockstep::app
