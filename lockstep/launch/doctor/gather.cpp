#include "lockstep/launch/doctor/gather.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "lockstep/base/control_group.h"
#include "lockstep/base/cores.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/device/facts/driver.h"
#include "lockstep/launch/machine/gpu_facts.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/launch/plan.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::optional<ResourceLimit> resource_limit(int resource) {
  rlimit limit{};
  if (getrlimit(__rlimit_resource_t(resource), &limit) != 0) return std::nullopt;
  const auto number = [](rlim_t value) {
    return value == RLIM_INFINITY ? std::nullopt : std::optional<std::uint64_t>(value);
  };
  return ResourceLimit{number(limit.rlim_cur), number(limit.rlim_max)};
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::ranges::sort(names);
  return names;
}

VersionFacts gather_versions(const Build& build, const Section& libtorch) {
  VersionFacts facts{.lockstep = build.version, .commit = build.commit};
  utsname kernel{};
  if (uname(&kernel) == 0) facts.kernel = std::string(kernel.sysname) + " " + kernel.release + " " + kernel.machine;
  facts.processor = instruction_sets(content("/proc/cpuinfo").value_or("")).value_or("unknown");
  for (const auto& [name, value] : libtorch.facts) {
    if (name == "version") facts.libtorch = value;
    if (name == "CUDA") facts.cuda = value;
    if (name == "NCCL") facts.nccl = value;
    if (name == "libtorch" || name == "trainer") facts.libtorch_error = value;
  }
  return facts;
}

MemoryFacts gather_memory() {
  MemoryFacts facts;
  struct statvfs status {};
  if (statvfs("/dev/shm", &status) == 0)
    facts.dev_shm = {std::uint64_t(status.f_blocks) * status.f_frsize,
                     std::uint64_t(status.f_bavail) * status.f_frsize};
  facts.locked = resource_limit(RLIMIT_MEMLOCK);
  const std::string huge = "/sys/kernel/mm/transparent_hugepage/";
  if (const auto text = content(huge + "enabled")) facts.huge_pages = bracketed(*text);
  if (const auto text = content(huge + "shmem_enabled")) facts.shared_huge_pages = bracketed(*text);
  const auto groups = base::limited_memory_groups();
  const auto least = std::ranges::min_element(groups, {}, &base::MemoryGroup::room);
  if (least != groups.end()) facts.control_group = {least->limit, least->room()};
  facts.rdma_devices = entries_of("/sys/class/infiniband");
  return facts;
}

ClockFacts gather_clock() {
  ClockFacts facts;
  if (const auto text = content("/sys/devices/system/clocksource/clocksource0/current_clocksource"))
    facts.source = without_newline(*text);
  timex state{};
  const int answer = adjtimex(&state);
  facts.synchronized = answer >= 0 && answer != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
  return facts;
}

GpuFacts gather_gpus() {
  GpuFacts facts;
  if (const auto text = content("/proc/driver/nvidia/version")) facts.driver = nvidia_driver(*text).value_or("unknown");
  facts.cards = int(entries_of("/proc/driver/nvidia/gpus").size());
  for (const std::string& name : entries_of("/dev")) {
    const bool numbered =
        name.starts_with("nvidia") && name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos;
    facts.devices += numbered && access(("/dev/" + name).c_str(), R_OK | W_OK) == 0;
  }
  if (!facts.driver && facts.devices == 0) return facts;
  const device::DriverReport report = device::ask_driver();
  if (facts.driver) facts.driver = driver_text(report, facts.driver);
  facts.unusable = report.none;
  if (report.gpus.size() > 1) facts.peers = device::peers_text(report.peers);
  return facts;
}

// The bytes of the segment of ours that the process holds open, 0 without one.
std::uint64_t held_segment(const std::string& process) {
  const base::UniqueFd folder(open((process + "/fd").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return 0;
  for (const std::string& fd : entries_of(process + "/fd")) {
    char target[64];
    const ssize_t length = readlinkat(folder.get(), fd.c_str(), target, sizeof target);
    if (length < 0 || !std::string_view(target, std::size_t(length)).starts_with("/memfd:lockstep-segment")) continue;
    struct stat status {};
    if (fstatat(folder.get(), fd.c_str(), &status, 0) == 0) return std::uint64_t(status.st_blocks) * 512;
  }
  return 0;
}

std::string variable_of(const std::string& environment, const std::string& name) {
  for (std::size_t at = 0; at < environment.size();) {
    const std::size_t end = std::min(environment.find('\0', at), environment.size());
    if (environment.compare(at, name.size() + 1, name + "=") == 0)
      return environment.substr(at + name.size() + 1, end - at - name.size() - 1);
    at = end + 1;
  }
  return {};
}

}  // namespace

std::vector<JobProcess> gather_processes() {
  std::vector<JobProcess> found;
  for (const std::string& entry : entries_of("/proc")) {
    JobProcess one;
    const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), one.pid);
    struct stat status {};
    const std::string folder = "/proc/" + entry;
    if (error != std::errc() || end != entry.data() + entry.size() || stat(folder.c_str(), &status) != 0 ||
        status.st_uid != getuid())
      continue;
    one.segment = variable_of(content(folder + "/environ").value_or(""), "LOCKSTEP_SEGMENT");
    one.segment_bytes = held_segment(folder);
    if (one.segment.empty() && one.segment_bytes == 0) continue;
    one.name = without_newline(content(folder + "/comm").value_or("?"));
    found.push_back(one);
  }
  return found;
}

std::vector<std::string> gather_log_folders(const std::string& folder) {
  std::vector<std::string> found;
  for (const std::string& name : entries_of(folder)) {
    struct stat status {};
    const std::string path = folder + "/" + name;
    if (name.starts_with("lockstep_") && name.size() == std::string_view("lockstep_XXXXXX").size() &&
        lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == getuid())
      found.push_back(path);
  }
  return found;
}

LocalFacts gather_local_facts(const Build& build, const Section& libtorch, const std::string& endpoint) {
  LocalFacts facts{.versions = gather_versions(build, libtorch),
                   .memory = gather_memory(),
                   .cores = {base::affinity_cores(), base::control_group_cores()},
                   .files = resource_limit(RLIMIT_NOFILE),
                   .processes = gather_processes(),
                   .interfaces = gather_interfaces(),
                   .name = gather_names(host_name()),
                   .clock = gather_clock(),
                   .gpus = gather_gpus()};
  const std::string temporary = value_of(this_environment(), "TMPDIR");
  facts.log_folders = gather_log_folders(temporary.empty() ? "/tmp" : temporary);
  if (!endpoint.empty()) facts.endpoint = gather_endpoint(endpoint, facts.interfaces);
  return facts;
}

}  // namespace lockstep::launch
