#include "lockstep/launch/plan.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/agent_store.h"

namespace lockstep::launch {
namespace {

bool names(const std::string& entry, std::string_view name) {
  return entry.size() > name.size() && entry.compare(0, name.size(), name) == 0 && entry[name.size()] == '=';
}

void set(Environment& environment, std::string_view name, const std::string& value) {
  std::erase_if(environment, [&](const std::string& entry) { return names(entry, name); });
  environment.push_back(std::string(name) + "=" + value);
}

// The GPU that a worker sees as its only one: its entry of the list, or its own number.
std::string visible_gpu(const std::string& list, int local_rank) {
  if (list.empty()) return std::to_string(local_rank);
  std::istringstream entries(list);
  std::string entry;
  for (int i = 0; std::getline(entries, entry, ','); ++i)
    if (i == local_rank) return entry;
  throw UsageError("run: --virtual-local-rank: CUDA_VISIBLE_DEVICES=" + list + " has no entry for local rank " +
                   std::to_string(local_rank));
}

bool is_executable_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

int world_size(const Plan& plan) { return plan.node.first_rank + plan.workers + plan.node.ranks_after; }

Environment this_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

std::string value_of(const Environment& environment, std::string_view name) {
  for (const std::string& entry : environment)
    if (names(entry, name)) return entry.substr(name.size() + 1);
  return {};
}

int threads_per_worker(int cores, int workers) { return std::max(1, cores / workers); }

std::string threads_note(const Plan& plan, const Environment& inherited, int cores) {
  if (plan.workers == 1 || !value_of(inherited, "OMP_NUM_THREADS").empty()) return {};
  return "lockstep: OMP_NUM_THREADS=" + std::to_string(threads_per_worker(cores, plan.workers)) + " for each of " +
         std::to_string(plan.workers) + " workers (" + std::to_string(cores) + (cores == 1 ? " core)\n" : " cores)\n");
}

Environment worker_environment(const Environment& inherited, const Plan& plan, const Attempt& attempt, int local_rank,
                               const std::string& error_file) {
  const std::string rank = std::to_string(plan.node.first_rank + local_rank);
  const std::string world = std::to_string(world_size(plan));
  std::string signals;
  for (const int signal : plan.signals)
    signals += (signals.empty() ? "SIG" : ",SIG") + std::string(sigabbrev_np(signal));
  Environment environment = inherited;
  const std::pair<const char*, std::string> variables[] = {
      {"RANK", rank},
      {"LOCAL_RANK", plan.virtual_local_rank ? "0" : std::to_string(local_rank)},
      {"ROLE_RANK", rank},
      {"GROUP_RANK", std::to_string(plan.node.rank)},
      {"WORLD_SIZE", world},
      {"LOCAL_WORLD_SIZE", std::to_string(plan.workers)},
      {"ROLE_WORLD_SIZE", world},
      {"GROUP_WORLD_SIZE", std::to_string(plan.node.nodes)},
      {"ROLE_NAME", plan.logs.role},
      {"MASTER_ADDR", plan.master_addr},
      {"MASTER_PORT", std::to_string(attempt.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(attempt.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(plan.max_restarts)},
      {"TORCHELASTIC_RUN_ID", attempt.run_id},
      // No store listens at MASTER_PORT: rank 0 makes its own, as under a plain env:// start.
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCHELASTIC_ERROR_FILE", error_file},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", signals},
      {"LOCKSTEP_SEGMENT", attempt.segment_path},
      {rendezvous::kAgentStoreVariable, attempt.store},
  };
  for (const auto& [name, value] : variables) set(environment, name, value);
  // The agents' key is none of theirs.
  std::erase_if(environment, [](const std::string& entry) {
    return names(entry, "LOCKSTEP_SECRET_FILE") || names(entry, "PET_SECRET_FILE");
  });
  if (plan.virtual_local_rank)
    set(environment, "CUDA_VISIBLE_DEVICES", visible_gpu(value_of(inherited, "CUDA_VISIBLE_DEVICES"), local_rank));
  if (value_of(inherited, "TORCH_NCCL_ASYNC_ERROR_HANDLING").empty())
    set(environment, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (value_of(inherited, "OMP_NUM_THREADS").empty())
    set(environment, "OMP_NUM_THREADS", std::to_string(threads_per_worker(attempt.cores, plan.workers)));
  return environment;
}

std::vector<std::string> worker_command(const std::vector<std::string>& command, int local_rank) {
  constexpr std::string_view kMacro = "${local_rank}";
  std::vector<std::string> result = command;
  for (std::size_t i = 1; i < result.size(); ++i)
    for (std::size_t at = 0; (at = result[i].find(kMacro, at)) != std::string::npos;)
      result[i].replace(at, kMacro.size(), std::to_string(local_rank));
  return result;
}

std::vector<std::string> resolve_command(std::vector<std::string> typed, Start start, const std::string& python) {
  if (start == Start::by_name) start = typed.front().ends_with(".py") ? Start::python : Start::program;
  if (start == Start::module) typed.insert(typed.begin(), {python, "-u", "-m"});
  if (start == Start::python) typed.insert(typed.begin(), {python, "-u"});
  return typed;
}

std::string find_program(const std::string& program, const std::string& path_variable) {
  if (program.find('/') != std::string::npos) return program;
  std::istringstream folders(path_variable);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = (folder.empty() ? "." : folder) + "/" + program;
    if (is_executable_file(candidate)) return candidate;
  }
  return {};
}

}  // namespace lockstep::launch
