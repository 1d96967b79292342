#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/text.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/flags/print.h"
#include "lockstep/launch/agent/agent.h"
#include "lockstep/launch/agent/leash.h"
#include "lockstep/launch/agent/port.h"
#include "lockstep/launch/dry_run.h"
#include "lockstep/launch/flags/nodes.h"
#include "lockstep/launch/flags/options.h"
#include "lockstep/launch/hosts/starter.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/launch/nodes/secret.h"
#include "lockstep/rendezvous/schedulers.h"
#include "worker_place.h"

namespace lockstep::app {
namespace {

// A launcher inside a launcher would make a job of its own per worker. RANK and its like alone say
// little: platforms set them for containers, and torchrun takes no notice of them either. A task of a scheduler is an
// agent where there are several nodes: one on each, or ask_scheduler() refuses them.
void refuse_to_nest(bool several_nodes) {
  const bool a_worker = std::getenv("LOCKSTEP_SEGMENT") != nullptr || std::getenv("TORCHELASTIC_RUN_ID") != nullptr;
  if (several_nodes && !a_worker) return;
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

std::optional<std::string> content_of(const std::string& path) {
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  return file.is_open() ? std::optional(text) : std::nullopt;
}

// The agents' key is this job's own, and the file is one that nobody else can name.
std::string in_memory(const std::string& key, base::UniqueFd& file) {
  file = base::UniqueFd(memfd_create("lockstep-key", MFD_CLOEXEC));
  if (!file || fchmod(file.get(), 0600) != 0 || write(file.get(), key.data(), key.size()) != ssize_t(key.size()))
    throw_errno("launcher: the key");
  return "/proc/self/fd/" + std::to_string(file.get());
}

int start_on_hosts(launch::Dialect dialect, const std::vector<std::string>& arguments, const launch::Options& options) {
  launch::HostsJob job = launch::hosts_job(dialect == launch::Dialect::run ? "run" : "launch", arguments, options,
                                           launch::this_environment(), content_of);
  job.folder = std::filesystem::current_path();
  job.program = own_folder() + "/lockstep";
  job.port_is_chosen = job.discovery || job.endpoint.empty();
  if (job.discovery)
    job.discovery->port = launch::free_port();
  else if (job.endpoint.empty())
    job.endpoint = launch::endpoint_on(job.hosts, launch::free_port());
  if (job.run_id.empty()) job.run_id = launch::random_id();
  if (options.dry_run) {
    std::string text;
    for (std::size_t i = 0; i < job.hosts.size(); ++i) text += base::join(launch::agent_command(job, i), " ") + "\n";
    return print(text);
  }
  const bool keyed = (job.discovery || job.hosts.size() > 1) && !options.nodes.settings.insecure;
  const std::string key = keyed ? launch::new_secret_text() : "\n";
  return launch::run_on_hosts(job, options.plan, key);
}

// Where the flags leave something to it.
void ask_scheduler(launch::Options& options) {
  if (options.nodes.by_scheduler)
    return launch::settle_nodes(options, rendezvous::resolve_auto_nodes(rendezvous::find_allocation()));
  const rendezvous::Limits& limits = options.nodes.settings.limits;
  const bool is_task = limits.max_nodes > 1 && rendezvous::is_task(::getenv);
  if (!is_task && !launch::asks_for_rank(options)) return;
  const std::optional<rendezvous::Allocation> allocation = rendezvous::find_allocation();
  if (!allocation) return;
  rendezvous::require_one_task_a_node(*allocation, to_string(limits));
  if (!launch::asks_for_rank(options) || !allocation->node_rank) return;
  launch::settle_nodes(options, rendezvous::resolve_auto_nodes(allocation, limits.max_nodes));
}

int run_as(launch::Dialect dialect, const std::vector<std::string>& arguments) {
  launch::Parsed parsed = launch::parse_options(dialect, arguments, ::getenv);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  launch::Options& options = parsed.options;
  base::UniqueFd key;
  launch::LeashStart started;
  if (options.by_starter) {
    started = launch::take_leash();
    options.nodes.settings.secret_file = started.first_line.empty() ? "" : in_memory(started.first_line, key);
  }
  refuse_to_nest(options.nodes.by_scheduler || options.nodes.settings.limits.max_nodes > 1);
  if ((!options.hosts.empty() || !options.discovery.empty()) && !options.by_starter)
    return start_on_hosts(dialect, arguments, options);
  ask_scheduler(options);
  const launch::Machine machine = launch::this_machine();
  launch::Plan plan = launch::make_plan(options, dialect, machine);
  plan.state_saver = checkpoint_program();
  plan.leash = started.leash.get();
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
