#include "lockstep/launch/machine/machine_report.h"

#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

#include "lockstep/base/control_group.h"
#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/base/segment.h"
#include "lockstep/base/text.h"
#include "lockstep/device/facts/driver.h"
#include "lockstep/launch/machine/gpu_facts.h"
#include "lockstep/launch/machine/store_speed.h"
#include "lockstep/launch/plan.h"

namespace lockstep::launch {
namespace {

struct File {
  std::string path;
  std::string text;
  std::string error;  // empty: it was read
};

File read_file(const std::string& path) {
  errno = 0;
  std::ifstream in(path);
  if (!in) return {path, {}, std::strerror(errno)};
  return {path, {std::istreambuf_iterator<char>(in), {}}, {}};
}

using Reader = std::function<std::optional<std::string>(std::string_view)>;

// What `reader` finds in the file.
std::string of_file(const File& file, const std::string& what, const Reader& reader) {
  if (!file.error.empty()) return unknown(file.path + ": " + file.error);
  return reader(file.text).value_or(unknown("no " + what + " in " + file.path));
}

Reader line(const std::string& key) {
  return [key](std::string_view text) { return line_value(text, key); };
}

Reader size(const std::string& key) {
  return [key](std::string_view text) { return size_of_line(text, key); };
}

Section versions(const Build& build) {
  utsname kernel{};
  const bool named = uname(&kernel) == 0;
  return {"versions",
          {{"lockstep", build.version},
           {"commit", build.commit.empty() ? unknown("not built in a git repository") : build.commit},
           {"compiler", build.compiler},
           {"build type", build.type},
           {"C library", std::string("glibc ") + gnu_get_libc_version()},
           {"kernel", named ? std::string(kernel.sysname) + " " + kernel.release + " " + kernel.machine
                            : unknown(std::strerror(errno))},
           {"distribution", of_file(read_file("/etc/os-release"), "PRETTY_NAME", distribution)}}};
}

std::string core_limit() {
  const auto cores = base::control_group_cores();
  if (!cores) return "none";
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", *cores);
  return text;
}

// The folders node0, node1, ... of the machine, in order.
std::vector<std::string> numa_nodes() {
  std::vector<int> numbers;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    int number = 0;
    if (std::sscanf(name.c_str(), "node%d", &number) == 1) numbers.push_back(number);
  }
  std::ranges::sort(numbers);
  std::vector<std::string> folders;
  folders.reserve(numbers.size());
  for (const int number : numbers) folders.push_back("/sys/devices/system/node/node" + std::to_string(number));
  return folders;
}

void add_numa_nodes(Section& section) {
  const std::vector<std::string> folders = numa_nodes();
  section.facts.push_back({"NUMA nodes", folders.empty() ? unknown("/sys/devices/system/node names none")
                                                         : std::to_string(folders.size())});
  const Reader whole = [](std::string_view text) { return without_newline(std::string(text)); };
  for (const std::string& folder : folders) {
    const std::string name = folder.substr(folder.rfind('/') + 1);
    const std::string number = name.substr(4);
    section.facts.push_back(
        {"NUMA node " + number,
         "cores " + of_file(read_file(folder + "/cpulist"), "list", whole) + ", memory " +
             of_file(read_file(folder + "/meminfo"), "MemTotal", size("Node " + number + " MemTotal"))});
  }
}

Section processor() {
  const File info = read_file("/proc/cpuinfo");
  Section section{"processor",
                  {{"model", of_file(info, "model name", line("model name"))},
                   {"instruction sets", of_file(info, "flags", instruction_sets)},
                   {"cores online", std::to_string(sysconf(_SC_NPROCESSORS_ONLN))},
                   {"cores by affinity", std::to_string(base::affinity_cores())},
                   {"cores by control group", core_limit()},
                   {"cores usable", std::to_string(base::usable_cores())}}};
  add_numa_nodes(section);
  return section;
}

std::string memory_limit() {
  const auto groups = base::limited_memory_groups();
  const auto least = std::ranges::min_element(groups, {}, &base::MemoryGroup::limit);
  if (least == groups.end()) return "none";
  return base::size_text(least->limit) + ", " + base::size_text(least->used) + " used";
}

std::string shared_memory() {
  struct statvfs status {};
  if (statvfs("/dev/shm", &status) != 0) return unknown(std::string("/dev/shm: ") + std::strerror(errno));
  return base::size_text(std::uint64_t(status.f_blocks) * status.f_frsize) + ", " +
         base::size_text(std::uint64_t(status.f_bavail) * status.f_frsize) + " free";
}

// The engine measures for itself, in the job; this is what to expect of it.
std::string stores_of(std::size_t bytes) {
  try {
    return store_speed_text(measure_stores(bytes));
  } catch (const Error& error) {
    return unknown(error.what());
  }
}

Section memory() {
  const File info = read_file("/proc/meminfo");
  const std::string huge = "/sys/kernel/mm/transparent_hugepage/";
  return {"memory",
          {{"total", of_file(info, "MemTotal", size("MemTotal"))},
           {"available", of_file(info, "MemAvailable", size("MemAvailable"))},
           {"control-group limit", memory_limit()},
           {"usable", base::size_text(base::available_memory())},
           {"swap", of_file(info, "SwapTotal", size("SwapTotal"))},
           {"/dev/shm", shared_memory()},
           {"transparent huge pages", of_file(read_file(huge + "enabled"), "choice", bracketed)},
           {"the same for shared memory", of_file(read_file(huge + "shmem_enabled"), "choice", bracketed)},
           {"huge pages reserved", of_file(info, "HugePages_Total", line("HugePages_Total"))},
           {"huge pages free", of_file(info, "HugePages_Free", line("HugePages_Free"))},
           {"huge page size", of_file(info, "Hugepagesize", size("Hugepagesize"))},
           {"stores, 1 MiB", stores_of(std::size_t(1) << 20)},
           {"stores, 32 MiB", stores_of(std::size_t(32) << 20)}}};
}

std::string limit(int resource, bool is_size) {
  rlimit limit{};
  if (getrlimit(__rlimit_resource_t(resource), &limit) != 0) return unknown(std::strerror(errno));
  const auto text = [&](rlim_t value) {
    if (value == RLIM_INFINITY) return std::string("unlimited");
    return is_size ? base::size_text(value) : std::to_string(value);
  };
  return text(limit.rlim_cur) + (limit.rlim_cur == limit.rlim_max ? "" : " (at most " + text(limit.rlim_max) + ")");
}

Section limits() {
  return {"limits",
          {{"open files", limit(RLIMIT_NOFILE, false)},
           {"processes", limit(RLIMIT_NPROC, false)},
           {"locked memory", limit(RLIMIT_MEMLOCK, true)},
           {"core file", limit(RLIMIT_CORE, true)}}};
}

Section gpus() {
  const File version = read_file("/proc/driver/nvidia/version");
  return gpu_section(device::ask_driver(),
                     version.error.empty() ? std::optional(of_file(version, "version", nvidia_driver)) : std::nullopt);
}

Section programs(const std::string& path) {
  Section section{"programs in PATH", {}};
  for (const char* name : {"python3", "torchrun", "mpirun", "srun"}) {
    const std::string found = find_program(name, path);
    section.facts.push_back({name, found.empty() ? "none" : found});
  }
  return section;
}

// The last line that says something: the loader's error, or the program's own.
std::string last_line(const std::string& text) {
  const std::string trimmed = without_newline(text);
  return trimmed.substr(trimmed.rfind('\n') + 1);
}

}  // namespace

std::vector<Section> machine_report(const Build& build, const std::vector<std::string>& environment) {
  return {versions(build),
          processor(),
          memory(),
          limits(),
          gpus(),
          programs(value_of(environment, "PATH")),
          {"environment", job_variables(environment)}};
}

Section libtorch_section(const std::string& trainer, const ProbeResult& probe) {
  Section section{"libtorch", {{"trainer", trainer}}};
  const auto add_unknown = [&](const std::string& why) {
    section.facts.push_back({"libtorch", unknown(why)});
    return section;
  };
  if (!probe.status) return add_unknown(probe.err);
  if (*probe.status != 0) {
    const std::string end = WIFSIGNALED(*probe.status) ? "signal " + std::to_string(WTERMSIG(*probe.status))
                                                       : "exit code " + std::to_string(WEXITSTATUS(*probe.status));
    return add_unknown("lockstep-trainer: " + end + (probe.err.empty() ? "" : ": " + last_line(probe.err)));
  }
  std::istringstream lines(probe.out);
  for (std::string entry; std::getline(lines, entry);)
    if (const std::size_t equals = entry.find('='); equals != std::string::npos)
      section.facts.push_back({entry.substr(0, equals), entry.substr(equals + 1)});
  if (section.facts.size() == 1) return add_unknown("lockstep-trainer said nothing of it");
  return section;
}

}  // namespace lockstep::launch
