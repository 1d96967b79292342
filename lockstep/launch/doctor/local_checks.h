#pragma once

// What the facts about one machine mean. All pure. Each gives one finding or more; the limits are those below.

#include <cstdint>
#include <vector>

#include "lockstep/launch/doctor/finding.h"
#include "lockstep/launch/doctor/local_facts.h"

namespace lockstep::launch {

/// Containers start with 64 MiB of /dev/shm; loaders of PyTorch and NCCL need more. Our own segments take none of it.
inline constexpr std::uint64_t kSmallDevShm = std::uint64_t(1) << 30;
/// Less left than this, and the next loader of PyTorch dies by SIGBUS.
inline constexpr std::uint64_t kFullDevShm = std::uint64_t(64) << 20;
/// Descriptors that a node needs: some for each of its workers, their files and their loaders.
inline constexpr std::uint64_t kFewFiles = 1024;

std::vector<Finding> check_versions(const VersionFacts& facts);
std::vector<Finding> check_memory(const MemoryFacts& facts);
std::vector<Finding> check_cores(const CoreFacts& facts);
std::vector<Finding> check_files(const std::optional<ResourceLimit>& facts);
std::vector<Finding> check_names(const NameFacts& facts);
std::vector<Finding> check_interfaces(const std::vector<Interface>& facts);
std::vector<Finding> check_endpoint(const EndpointFacts& facts);
std::vector<Finding> check_clock(const ClockFacts& facts);
std::vector<Finding> check_gpus(const GpuFacts& facts);
std::vector<Finding> check_leftovers(const LocalFacts& facts);

/// Those of `processes` whose agent has ended: none that holds a segment has the number that LOCKSTEP_SEGMENT tells.
/// Ranks that another launcher has started are not told from those that somebody runs on his own, and left out.
std::vector<JobProcess> left_over(const std::vector<JobProcess>& processes);

/// All of them.
std::vector<Finding> check_machine(const LocalFacts& facts);

}  // namespace lockstep::launch
