#include "lockstep/launch/flags/options.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "lockstep/base/control_page.h"
#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/flags/flags.h"
#include "lockstep/launch/flags/nodes.h"
#include "lockstep/launch/machine/machine.h"

namespace lockstep::launch {
namespace {

bool is_this_machine(const std::string& address, const Machine& machine) {
  return address == "localhost" || address == machine.host || (machine.has_address && machine.has_address(address));
}

void require_this_machine(const std::string& flag, const std::string& address, const Machine& machine) {
  if (!is_this_machine(address, machine))
    throw UsageError(flag + " " + address + " is not this machine (localhost, 127.0.0.1, " + machine.host +
                     "), and --nnodes is 1");
}

int worker_count(const std::string& text, const Machine& machine) {
  const std::string flag = "run: --nproc-per-node";
  if (text == "xpu") throw UsageError(flag + " xpu: not yet; give a number");
  if (text == "gpu" && machine.gpus == 0) throw UsageError(flag + " gpu: this machine shows no NVIDIA GPU");
  int count = 0;
  if (text == "gpu" || (text == "auto" && machine.gpus > 0))
    count = machine.gpus;
  else if (text == "cpu" || text == "auto")
    count = machine.cores;
  else if (text.find_first_not_of("0123456789") != std::string::npos)
    throw UsageError(flag + " '" + text + "' is not a number from 1 to " + std::to_string(base::kMaxLocalRanks) +
                     ", nor auto, cpu or gpu");
  else
    count = number(flag, text, 1, base::kMaxLocalRanks);
  return number(flag, std::to_string(count), 1, base::kMaxLocalRanks);
}

// Each worker to the cores near the GPU of its local rank.
void settle_numa_binding(const Options& options, const Machine& machine, Plan& plan) {
  const std::string flag = "run: --numa-binding " + options.numa_binding;
  if (machine.numa_nodes == 1) throw UsageError(flag + ": this machine has one NUMA node: nothing to bind to");
  if (options.numa_binding != "node") throw UsageError(flag + ": not yet; node is there");
  for (int rank = 0; rank < plan.workers; ++rank) {
    const bool known = std::size_t(rank) < machine.gpu_cores.size() && !machine.gpu_cores[std::size_t(rank)].empty();
    if (!known)
      throw UsageError(flag + ": of the " + std::to_string(plan.workers) + " workers, local rank " +
                       std::to_string(rank) + " has no GPU whose NUMA node the kernel tells");
    plan.worker_cores.push_back(machine.gpu_cores[std::size_t(rank)]);
  }
}

// MASTER_ADDR and MASTER_PORT, and the run's id, by torchrun's rules for each backend.
void settle_rendezvous(const Options& options, const Machine& machine, Plan& plan) {
  plan.master_addr = "127.0.0.1";
  if (options.nodes.rank > 0)
    throw UsageError("run: --node-rank " + std::to_string(options.nodes.rank) +
                     ": the only node has rank 0; --nnodes is 1");
  if (!options.master_addr.empty()) require_this_machine("run: --master-addr", options.master_addr, machine);
  if (options.standalone) {
    plan.master_addr = options.local_addr.empty() ? "localhost" : options.local_addr;
    return;  // a fresh id and a free port
  }
  plan.run_id = options.rdzv_id;
  const auto [host, port] = endpoint_of(options.rdzv_endpoint, 0);
  if (!options.rdzv_endpoint.empty()) require_this_machine("run: --rdzv-endpoint", host, machine);
  if (options.rdzv_backend == "c10d") {
    // The endpoint is the agents' meeting place; the workers get a port of their own.
    plan.master_addr = options.local_addr.empty() ? "localhost" : options.local_addr;
  } else if (!options.rdzv_endpoint.empty()) {
    plan.master_addr = host;
    plan.master_port = port;
  } else {
    if (!options.master_addr.empty()) plan.master_addr = options.master_addr;
    plan.master_port = options.master_port;
  }
}

// Several nodes: who is where is known when they have met. Until then, as if all had as many workers.
void settle_nodes(const Options& options, Plan& plan) {
  plan.nodes = nodes_settings(options);
  plan.run_id = options.rdzv_id;
  plan.master_addr = plan.nodes->host;
  const int rank = std::max(0, plan.nodes->node_rank);
  const int nodes = plan.nodes->limits.max_nodes;
  plan.node = {.rank = rank,
               .nodes = nodes,
               .first_rank = rank * plan.workers,
               .ranks_after = (nodes - rank - 1) * plan.workers};
}

Start start_of(const Options& options) {
  if (options.run_path) return Start::python;
  if (options.module && options.no_python)
    throw UsageError("run: --module and --no-python exclude each other: a module is run by Python");
  if (options.module) return Start::module;
  return options.no_python ? Start::program : Start::by_name;
}

}  // namespace

Parsed parse_options(Dialect dialect, const std::vector<std::string>& arguments, const flags::GetEnv& get) {
  Options options;
  const flags::Parsed parsed = flags::parse(table_of(dialect, options), arguments, get);
  if (!parsed.text.empty()) return {.options = {}, .text = parsed.text};
  if (const char* prefix = get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")) options.plan.logs.prefix_template = prefix;
  std::string& secret = options.nodes.settings.secret_file;
  if (const char* file = get("LOCKSTEP_SECRET_FILE"); file != nullptr && secret.empty()) secret = file;
  options.typed = parsed.operands;
  if (!options.typed.empty() && options.typed.front().empty()) throw UsageError("run: the program's name is empty");
  if (options.typed.empty()) throw UsageError("run: no program given: lockstep run [options] program [arguments]");
  return {.options = options, .text = ""};
}

Plan make_plan(const Options& options, Dialect dialect, const Machine& machine) {
  Plan plan = options.plan;
  plan.workers = worker_count(options.nproc_per_node, machine);
  require_ranks("run: --redirects", plan.logs.redirects.named(), plan.workers);
  require_ranks("run: --tee", plan.logs.tee.named(), plan.workers);
  require_ranks("run: --local-ranks-filter", plan.logs.console_ranks, plan.workers);
  if (!options.numa_binding.empty()) settle_numa_binding(options, machine, plan);
  if (plan.logs.dir == "/dev/null" && !(plan.logs.stdout_filters.empty() && plan.logs.stderr_filters.empty()))
    throw UsageError("run: --duplicate-std...-filters need a folder, but --log-dir is /dev/null");
  if (options.nodes.settings.limits.max_nodes > 1)
    settle_nodes(options, plan);
  else
    settle_rendezvous(options, machine, plan);
  const Start start = start_of(options);
  std::vector<std::string> typed = options.typed;
  if (dialect == Dialect::launch && !options.use_env) {
    if (options.no_python) throw UsageError("launch: --no-python needs --use-env: only scripts get --local-rank");
    typed.insert(typed.begin() + 1, "--local-rank=${local_rank}");
  }
  plan.command = resolve_command(typed, start, machine.python);
  if (plan.command.front() == machine.python && start != Start::module) plan.script = options.typed.front();
  if (plan.command.front().empty()) throw UsageError("run: there is no python3 in PATH to run " + typed.front());
  return plan;
}

Machine this_machine() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string list = visible != nullptr ? visible : "";
  const char* path_variable = std::getenv("PATH");
  const std::string path = path_variable != nullptr ? path_variable : "/usr/bin:/bin";
  const char* chosen = std::getenv("PYTHON_EXEC");
  Machine machine{.host = host_name(),
                  .cores = base::usable_cores(),
                  .gpus = count_gpus(visible != nullptr ? &list : nullptr),
                  .numa_nodes = count_numa_nodes(),
                  .has_address = is_local_address,
                  .python = chosen != nullptr ? chosen : ""};
  std::vector<int> gpus(std::size_t(machine.gpus));
  std::iota(gpus.begin(), gpus.end(), 0);
  machine.gpu_cores = cores_of_workers(gpus);
  for (const char* name : {"python3", "python"})
    if (machine.python.empty() && !find_program(name, path).empty()) machine.python = name;
  return machine;
}

}  // namespace lockstep::launch
