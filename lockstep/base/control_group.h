#pragma once

// What the control groups (cgroups, version 1 and 2, mounted anywhere) of this process allow it.
// A limit of any group above it counts as its own. Thread-safe. What cannot be read limits
// nothing: a machine need not have control groups.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

/// This process's group in one hierarchy.
struct ControlGroup {
  int version = 2;
  std::vector<std::string> folders;  ///< of the group itself, then of each above it that is visible
};

/// The cores that this process's groups grant, "1.5" for instance; nothing when unlimited.
std::optional<double> control_group_cores();

/// A group with a memory limit. Bytes.
struct MemoryGroup {
  std::string folder;
  std::uint64_t limit = 0;
  std::uint64_t used = 0;  ///< without the page cache, which makes room when it must
  std::uint64_t room() const { return limit > used ? limit - used : 0; }
};

/// The groups of this process that limit its memory; its own ones first.
std::vector<MemoryGroup> limited_memory_groups();

/// How often the kernel has killed for want of memory. Nothing: it does not say.
struct OutOfMemoryCounts {
  std::optional<std::uint64_t> machine_kills;  ///< processes of any group, by /proc/vmstat
  std::optional<std::uint64_t> group_kills;    ///< processes of this process's group
  bool group_was_full = false;                 ///< whether it or a group above it has ever reached its limit
};

OutOfMemoryCounts out_of_memory_counts();

/// OutOfMemoryCounts::machine_kills alone, which is cheap to read.
std::optional<std::uint64_t> machine_out_of_memory_kills();

/// Where this process's groups are that can limit `controller` ("cpu", "memory"). At most one of
/// each version.
std::vector<ControlGroup> control_groups(std::string_view controller);

// The rules, pure.

/// The same from the texts of /proc/self/mountinfo and /proc/self/cgroup.
std::vector<ControlGroup> control_groups(std::string_view mountinfo, std::string_view membership,
                                         std::string_view controller);

/// "150000 100000" (cpu.max) is 1.5 cores; nothing for "max 100000" and text of another form.
std::optional<double> cores_of_cpu_max(std::string_view text);

/// The same by cpu.cfs_quota_us ("-1": unlimited) and cpu.cfs_period_us.
std::optional<double> cores_of_cfs(std::string_view quota, std::string_view period);

/// The bytes of memory.max or memory.limit_in_bytes; nothing for "max" and for version 1's way
/// to say it, a number beyond all memory.
std::optional<std::uint64_t> limit_of_memory(std::string_view text);

/// The number after `key` in lines of "key number"; nothing when there is no such line.
std::optional<std::uint64_t> value_of_key(std::string_view text, std::string_view key);

}  // namespace lockstep::base
