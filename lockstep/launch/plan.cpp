#include "lockstep/launch/plan.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string_view>

namespace lockstep::launch {
namespace {

bool names(const std::string& entry, std::string_view name) {
  return entry.size() > name.size() && entry.compare(0, name.size(), name) == 0 && entry[name.size()] == '=';
}

bool is_set(const Environment& environment, std::string_view name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& entry) { return names(entry, name); });
}

void set(Environment& environment, std::string_view name, const std::string& value) {
  std::erase_if(environment, [&](const std::string& entry) { return names(entry, name); });
  environment.push_back(std::string(name) + "=" + value);
}

bool is_executable_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

Environment this_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

Environment worker_environment(const Environment& inherited, const Plan& plan, const Attempt& attempt, int local_rank) {
  const std::string rank = std::to_string(local_rank);
  const std::string world = std::to_string(plan.workers);
  Environment environment = inherited;
  const std::pair<const char*, std::string> variables[] = {
      {"RANK", rank},
      {"LOCAL_RANK", rank},
      {"ROLE_RANK", rank},
      {"GROUP_RANK", "0"},
      {"WORLD_SIZE", world},
      {"LOCAL_WORLD_SIZE", world},
      {"ROLE_WORLD_SIZE", world},
      {"GROUP_WORLD_SIZE", "1"},
      {"ROLE_NAME", "default"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(attempt.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      {"TORCHELASTIC_RUN_ID", attempt.run_id},
      // No store listens at MASTER_PORT: rank 0 makes its own, as under a plain env:// start.
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"LOCKSTEP_SEGMENT", attempt.segment_path},
  };
  for (const auto& [name, value] : variables) set(environment, name, value);
  if (!is_set(environment, "OMP_NUM_THREADS"))
    set(environment, "OMP_NUM_THREADS", std::to_string(std::max(1, attempt.cores / plan.workers)));
  return environment;
}

std::vector<std::string> resolve_command(std::vector<std::string> typed) {
  if (typed.front().ends_with(".py")) typed.insert(typed.begin(), {"python3", "-u"});
  return typed;
}

std::string find_program(const std::string& program, const std::string& path_variable) {
  if (program.find('/') != std::string::npos) return program;
  std::istringstream folders(path_variable);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + program;
    if (is_executable_file(candidate)) return candidate;
  }
  return {};
}

}  // namespace lockstep::launch
