#include "lockstep/launch/doctor/local_checks.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "lockstep/base/text.h"

namespace lockstep::launch {
namespace {

using Level = Finding::Level;

std::string limit_text(const std::optional<std::uint64_t>& limit, bool is_size) {
  if (!limit) return "unlimited";
  return is_size ? base::size_text(*limit) : std::to_string(*limit);
}

std::string limits_text(const ResourceLimit& limit, bool is_size) {
  const std::string soft = limit_text(limit.soft, is_size);
  return limit.soft == limit.hard ? soft : soft + " (at most " + limit_text(limit.hard, is_size) + ")";
}

Finding check_dev_shm(const std::optional<MemoryFacts::Space>& space) {
  if (!space)
    return {Level::wrong, "/dev/shm", "not there",
            "mount it: loaders of PyTorch and NCCL need it (lockstep's own memory does not)"};
  const std::string value = base::size_text(space->size) + ", " + base::size_text(space->free) + " free";
  if (space->free < kFullDevShm)
    return {Level::wrong, "/dev/shm", value, "remove what earlier jobs left there, or enlarge it"};
  if (space->size < kSmallDevShm)
    return {Level::note, "/dev/shm", value,
            "loaders of PyTorch and NCCL may need more: docker run --shm-size=8g (lockstep's own memory needs none)"};
  return {Level::good, "/dev/shm", value, ""};
}

Finding check_locked(const MemoryFacts& facts) {
  if (!facts.locked) return {Level::note, "locked memory", "unknown", "getrlimit does not tell it"};
  const std::string value = limits_text(*facts.locked, true);
  if (facts.locked->soft && !facts.rdma_devices.empty())
    return {Level::wrong, "locked memory", value + ", with " + base::join(facts.rdma_devices),
            "RDMA registers memory: ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit of systemd or SLURM"};
  return {Level::good, "locked memory", value, ""};
}

Finding check_huge_pages(const MemoryFacts& facts) {
  const std::string value =
      facts.huge_pages.value_or("unknown") + ", shared memory: " + facts.shared_huge_pages.value_or("unknown");
  if (facts.huge_pages == "never")
    return {Level::note, "huge pages", value,
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: large models train faster"};
  return {Level::good, "huge pages", value, ""};
}

Finding check_memory_limit(const MemoryFacts& facts) {
  if (!facts.control_group) return {Level::good, "memory limit", "none", ""};
  const auto& [limit, left] = *facts.control_group;
  const std::string value = base::size_text(limit) + ", " + base::size_text(left) + " left";
  if (left < limit / 20)
    return {Level::wrong, "memory limit", value,
            "the kernel kills a worker soon: end what uses the memory, or give the control group more"};
  return {Level::good, "memory limit", value, ""};
}

// The process that LOCKSTEP_SEGMENT, "/proc/71/fd/5", names; 0: it names none.
pid_t agent_of(const std::string& segment) {
  constexpr std::string_view start = "/proc/";
  pid_t agent = 0;
  if (segment.starts_with(start)) {
    const char* const digits = segment.data() + start.size();
    std::from_chars(digits, segment.data() + segment.size(), agent);
  }
  return agent;
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace

std::vector<Finding> check_versions(const VersionFacts& facts) {
  std::vector<Finding> findings = {
      {Level::good, "lockstep", facts.lockstep + (facts.commit.empty() ? "" : ", commit " + facts.commit), ""},
      {Level::good, "kernel", facts.kernel, ""},
      {Level::good, "processor", facts.processor, ""}};
  if (facts.libtorch.empty())
    findings.push_back({Level::wrong, "libtorch", facts.libtorch_error,
                        "lockstep train needs it: install the build with its libtorch, or set LD_LIBRARY_PATH"});
  else
    findings.push_back({Level::good, "libtorch",
                        facts.libtorch + (facts.cuda.empty() ? "" : ", CUDA: " + facts.cuda) +
                            (facts.nccl.empty() ? "" : ", NCCL: " + facts.nccl),
                        ""});
  return findings;
}

std::vector<Finding> check_memory(const MemoryFacts& facts) {
  return {check_dev_shm(facts.dev_shm), check_locked(facts), check_huge_pages(facts), check_memory_limit(facts)};
}

std::vector<Finding> check_cores(const CoreFacts& facts) {
  char value[64];
  if (!facts.granted || *facts.granted >= facts.by_affinity) {
    std::snprintf(value, sizeof value, "%d", facts.by_affinity);
    return {{Level::good, "cores", value, ""}};
  }
  std::snprintf(value, sizeof value, "%d, of which control groups grant %.2f", facts.by_affinity, *facts.granted);
  if (*facts.granted < 1)
    return {{Level::wrong, "cores", value, "a step waits for a share of one core: give the container at least 1 CPU"}};
  if (std::floor(*facts.granted) != *facts.granted)
    return {{Level::note, "cores", value, "the last core is taken away in each period: grant whole CPUs"}};
  return {{Level::good, "cores", value, ""}};
}

std::vector<Finding> check_files(const std::optional<ResourceLimit>& facts) {
  if (!facts) return {{Level::note, "open files", "unknown", "getrlimit does not tell it"}};
  const std::string value = limits_text(*facts, false);
  if (facts->soft && *facts->soft < kFewFiles)
    return {{Level::wrong, "open files", value,
             "ulimit -n " + std::to_string(kFewFiles) + " or more" +
                 (facts->hard && *facts->hard < kFewFiles ? ", by root: the hard limit is lower" : "")}};
  return {{Level::good, "open files", value, ""}};
}

std::vector<Finding> check_names(const NameFacts& facts) {
  const std::string what = "name " + facts.host;
  if (!facts.error.empty())
    return {{Level::wrong, what, "does not resolve: " + facts.error,
             "put it into /etc/hosts or the DNS: Gloo and MASTER_ADDR use it"}};
  std::vector<Finding> findings;
  std::vector<std::string> addresses;
  for (const auto& [address, name] : facts.addresses) addresses.push_back(address);
  if (std::ranges::all_of(addresses, is_loopback))
    findings.push_back({Level::note, what, base::join(addresses),
                        "no other machine reaches it by this: for several nodes give it an address of the network"});
  else
    findings.push_back({Level::good, what, base::join(addresses), ""});
  for (const auto& [address, name] : facts.addresses) {
    if (is_loopback(address)) continue;
    const std::string back = "name of " + address;
    const auto first = [](const std::string& full) { return full.substr(0, full.find('.')); };
    if (name.empty())
      findings.push_back({Level::note, back, "none", "programs that look names up wait for the resolver"});
    else if (first(name) != first(facts.host))
      findings.push_back({Level::note, back, name + ", not " + facts.host,
                          "another machine may have had this address: correct /etc/hosts or the DNS"});
    else
      findings.push_back({Level::good, back, name, ""});
  }
  return findings;
}

std::vector<Finding> check_interfaces(const std::vector<Interface>& facts) {
  std::vector<std::string> up;
  for (const Interface& one : facts)
    if (one.up && !one.loopback) up.push_back(one.name + " " + one.address);
  if (up.empty())
    return {{Level::note, "interfaces", "none but loopback", "enough for one machine; several need a network"}};
  return {{Level::good, "interfaces", base::join(up), ""}};
}

std::vector<Finding> check_endpoint(const EndpointFacts& facts) {
  const std::string what = "endpoint " + facts.text;
  if (!facts.error.empty())
    return {{Level::wrong, what, facts.error, "give a name or an address that this machine can reach"}};
  const std::string place = facts.address + " by " + (facts.interface_name.empty() ? "?" : facts.interface_name);
  if (!facts.local) return {{Level::good, what, place + ", on another machine", ""}, unprotected()};
  if (!facts.port_error.empty())
    return {{Level::wrong, what, place + ", port " + std::to_string(facts.port) + ": " + facts.port_error,
             "choose another port, or end who has it (ss -ltnp)"}};
  std::vector<Finding> findings = {
      {Level::good, what, place + ", here, port " + (facts.port == 0 ? "any" : std::to_string(facts.port)) + " is free",
       ""}};
  if (is_loopback(facts.address))
    findings.push_back({Level::note, what, "is loopback", "other machines cannot reach it"});
  else
    findings.push_back(unprotected());
  return findings;
}

std::vector<Finding> check_clock(const ClockFacts& facts) {
  std::vector<Finding> findings;
  const std::string source = facts.source.value_or("unknown");
  const bool slow = source == "hpet" || source == "acpi_pm" || source == "jiffies";
  findings.push_back({slow ? Level::note : Level::good, "clock source", source,
                      slow ? "reading the clock is a system call: look for 'tsc' in the kernel's log" : ""});
  if (facts.synchronized)
    findings.push_back({Level::good, "clock", "synchronized", ""});
  else
    findings.push_back({Level::note, "clock", "not synchronized",
                        "run chronyd or systemd-timesyncd: with several nodes the report orders failures by time"});
  return findings;
}

std::vector<Finding> check_gpus(const GpuFacts& facts) {
  if (!facts.driver && facts.devices == 0) return {{Level::good, "GPUs", "none", ""}};
  const std::string value = std::to_string(facts.devices) + " of " + std::to_string(facts.cards) +
                            " can be opened, driver " + facts.driver.value_or("unknown") +
                            (facts.peers.empty() ? "" : ", peer access: " + facts.peers);
  if (facts.devices < facts.cards && facts.devices == 0)
    return {{Level::wrong, "GPUs", value,
             "a container gets them by --gpus all or --device /dev/nvidia0; a user by the group of these files"}};
  if (!facts.driver) return {{Level::wrong, "GPUs", value, "there are device files without a driver: modprobe nvidia"}};
  if (!facts.unusable.empty())
    return {{Level::note, "GPUs", value + ", but " + facts.unusable,
             "for jobs on GPUs CUDA_VISIBLE_DEVICES has to name some, and the driver's libraries to be those of the "
             "kernel's module: nvidia-smi says more"}};
  return {{Level::good, "GPUs", value, ""}};
}

std::vector<JobProcess> left_over(const std::vector<JobProcess>& processes) {
  const auto lives = [&](pid_t agent) {
    return std::ranges::any_of(processes,
                               [&](const JobProcess& one) { return one.pid == agent && one.segment_bytes > 0; });
  };
  std::vector<JobProcess> left;
  for (const JobProcess& one : processes) {
    const pid_t agent = agent_of(one.segment);
    if (agent != 0 && !lives(agent)) left.push_back(one);
  }
  return left;
}

std::vector<Finding> check_leftovers(const LocalFacts& facts) {
  std::vector<Finding> findings;
  for (const JobProcess& one : left_over(facts.processes))
    findings.push_back({Level::wrong, "left over",
                        "process " + std::to_string(one.pid) + " (" + one.name +
                            ") of a job whose launcher has ended, " + base::size_text(one.segment_bytes) +
                            " of shared memory",
                        "kill " + std::to_string(one.pid) + ", and kill -9 when it stays"});
  if (!facts.log_folders.empty())
    findings.push_back(
        {Level::note, "left over",
         std::to_string(facts.log_folders.size()) + " log folders, the first is " + facts.log_folders.front(),
         "remove those that nobody needs; --log-dir puts logs elsewhere"});
  if (findings.empty()) findings.push_back({Level::good, "left over", "nothing of earlier jobs", ""});
  return findings;
}

std::vector<Finding> check_machine(const LocalFacts& facts) {
  std::vector<Finding> all;
  const auto add = [&](std::vector<Finding> more) { all.insert(all.end(), more.begin(), more.end()); };
  add(check_versions(facts.versions));
  add(check_cores(facts.cores));
  add(check_memory(facts.memory));
  add(check_files(facts.files));
  add(check_gpus(facts.gpus));
  add(check_clock(facts.clock));
  add(check_names(facts.name));
  add(check_interfaces(facts.interfaces));
  if (facts.endpoint) add(check_endpoint(*facts.endpoint));
  add(check_leftovers(facts));
  return all;
}

}  // namespace lockstep::launch
