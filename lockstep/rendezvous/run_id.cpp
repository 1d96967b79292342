#include "lockstep/rendezvous/run_id.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "lockstep/base/text.h"

namespace lockstep::rendezvous {
namespace {

std::string value(const GetEnv& get, const char* name, const std::string& otherwise) {
  const char* text = get(name);
  return text == nullptr || *text == '\0' ? otherwise : text;
}

// Of "/proc/71/fd/3", by which workers open the agent's segment; 0 of anything else.
pid_t agent_of(const std::string& segment_path) {
  int pid = 0, fd = 0;
  return std::sscanf(segment_path.c_str(), "/proc/%d/fd/%d", &pid, &fd) == 2 ? pid : 0;
}

std::string slurm_job(const GetEnv& get) {
  return value(get, "SLURM_CLUSTER_NAME", "slurm") + " " + value(get, "SLURM_JOB_ID", "?") + "." +
         value(get, "SLURM_STEP_ID", value(get, "SLURM_STEPID", "?"));
}

std::string id_of(const Place& place, const GetEnv& get, const ProcessName& name, pid_t self, pid_t parent) {
  if (place.launcher == "srun") return slurm_job(get);
  if (place.launcher == "mpirun") return place.job_key + ", " + name(parent);
  if (place.launcher == "hand") return place.meeting_key;
  if (place.launcher == "alone") return name(self);
  const pid_t agent = agent_of(place.segment_path);
  return value(get, "TORCHELASTIC_RUN_ID", "none") + ", " + name(agent > 0 ? agent : parent);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

// The process's name, in parentheses, may hold anything, parentheses too: fields are counted behind the last one.
std::string process_name(pid_t pid, const std::string& stat, const std::string& boot_id) {
  const std::size_t name_end = stat.rfind(')');
  std::istringstream fields(name_end == std::string::npos ? "" : stat.substr(name_end + 1));
  std::string started, boot;
  for (int field = 3; field <= 22; ++field)
    if (!(fields >> started)) started = "?";
  if (!(std::istringstream(boot_id) >> boot)) boot = "?";
  return "pid " + std::to_string(pid) + " started at " + started + " of boot " + boot;
}

std::string run_id(const Place& place, const GetEnv& get, const ProcessName& name, pid_t self, pid_t parent) {
  return base::shown(place.launcher + " " + id_of(place, get, name, self, parent));
}

std::string run_id(const Place& place) {
  const auto name = [](pid_t pid) {
    return process_name(pid, text_of("/proc/" + std::to_string(pid) + "/stat"),
                        text_of("/proc/sys/kernel/random/boot_id"));
  };
  return run_id(
      place, [](const char* variable) { return ::getenv(variable); }, name, ::getpid(), ::getppid());
}

}  // namespace lockstep::rendezvous
