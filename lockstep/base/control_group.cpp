#include "lockstep/base/control_group.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

namespace lockstep::base {
namespace {

// A mounted hierarchy. `root` is the group that `point` shows: containers see a part only.
struct Mount {
  bool v2 = false;
  std::string root;
  std::string point;
};

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || (end != text.data() + text.size() && *end != '\n' && *end != ' ')) return std::nullopt;
  return value;
}

bool lists(std::string_view comma_separated, std::string_view word) {
  return ("," + std::string(comma_separated) + ",").find("," + std::string(word) + ",") != std::string::npos;
}

// The kernel writes blanks in paths as \040 and the like.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool escape = text[at] == '\\' && at + 3 < text.size() && text[at + 1] >= '0' && text[at + 1] <= '3';
    if (escape) {
      plain += char(std::stoi(text.substr(at + 1, 3), nullptr, 8));
      at += 3;
    } else {
      plain += text[at];
    }
  }
  return plain;
}

// A line of mountinfo: "31 23 0:28 root point options optional... - type source super-options".
std::optional<Mount> mount_of(const std::string& line, std::string_view controller) {
  std::istringstream head(line);
  std::string skipped, root, point, type, source, super;
  head >> skipped >> skipped >> skipped >> root >> point;
  const std::size_t dash = line.find(" - ");
  if (dash == std::string::npos) return std::nullopt;
  std::istringstream tail(line.substr(dash + 3));
  tail >> type >> source >> super;
  if (type != "cgroup2" && !(type == "cgroup" && lists(super, controller))) return std::nullopt;
  return Mount{type == "cgroup2", unescaped(root), unescaped(point)};
}

// This process's group in a hierarchy, by lines of "4:memory:/group", "0::/group" in version 2.
std::optional<std::string> group_of(std::string_view membership, bool v2, std::string_view controller) {
  std::istringstream lines{std::string(membership)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', std::min(first, line.size() - 1) + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? line.starts_with("0::") : lists(controllers, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

std::vector<std::string> folders_of(const Mount& mount, std::string group) {
  const std::string root = mount.root == "/" ? "" : mount.root;
  const bool visible = group.starts_with(root) && (group.size() == root.size() || group[root.size()] == '/') &&
                       group.find("/..") == std::string::npos;
  group = visible ? group.substr(root.size()) : "";
  std::vector<std::string> folders;
  for (; !group.empty() && group != "/"; group.resize(group.rfind('/'))) folders.push_back(mount.point + group);
  folders.push_back(mount.point);
  return folders;
}

std::optional<MemoryGroup> memory_group(const std::string& folder, bool v2) {
  const auto limit = limit_of_memory(read_text(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes")));
  if (!limit) return std::nullopt;
  const std::string stat = read_text(folder + "/memory.stat");
  const std::string prefix = v2 ? "" : "total_";
  const std::uint64_t cache =
      value_of_key(stat, prefix + "inactive_file").value_or(0) + value_of_key(stat, prefix + "active_file").value_or(0);
  const std::uint64_t used =
      number_of<std::uint64_t>(read_text(folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes"))).value_or(0);
  return MemoryGroup{folder, *limit, used > cache ? used - cache : 0};
}

bool was_full_v2(const std::string& folder) {
  return value_of_key(read_text(folder + "/memory.events"), "oom").value_or(0) > 0;
}

// Version 1 has a counter too, memory.failcnt, but newer kernels (6.18) leave it at 0.
bool was_full_v1(const std::string& folder) {
  constexpr std::uint64_t charged_at_once = 1 << 20;
  const auto limit = limit_of_memory(read_text(folder + "/memory.limit_in_bytes"));
  const auto most = number_of<std::uint64_t>(read_text(folder + "/memory.max_usage_in_bytes"));
  return limit && most && *most + charged_at_once >= *limit;
}

void add(std::optional<std::uint64_t>& sum, std::optional<std::uint64_t> more) {
  if (more) sum = sum.value_or(0) + *more;
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view mountinfo, std::string_view membership,
                                         std::string_view controller) {
  std::vector<ControlGroup> found;
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    const std::optional<Mount> mount = mount_of(line, controller);
    if (!mount) continue;
    const int version = mount->v2 ? 2 : 1;
    if (std::ranges::any_of(found, [&](const ControlGroup& group) { return group.version == version; })) continue;
    if (const auto group = group_of(membership, mount->v2, controller))
      found.push_back({version, folders_of(*mount, *group)});
  }
  return found;
}

std::vector<ControlGroup> control_groups(std::string_view controller) {
  return control_groups(read_text("/proc/self/mountinfo"), read_text("/proc/self/cgroup"), controller);
}

std::optional<double> cores_of_cpu_max(std::string_view text) {
  const std::size_t blank = text.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  return cores_of_cfs(text.substr(0, blank), text.substr(blank + 1));
}

std::optional<double> cores_of_cfs(std::string_view quota, std::string_view period) {
  const auto time = number_of<double>(quota);
  const auto of = number_of<double>(period);
  if (!time || !of || *time <= 0 || *of <= 0) return std::nullopt;
  return *time / *of;
}

std::optional<std::uint64_t> limit_of_memory(std::string_view text) {
  constexpr std::uint64_t beyond_all_memory = std::uint64_t(1) << 60;
  const auto bytes = number_of<std::uint64_t>(text);
  return bytes && *bytes < beyond_all_memory ? bytes : std::nullopt;
}

std::optional<std::uint64_t> value_of_key(std::string_view text, std::string_view key) {
  std::istringstream words{std::string(text)};
  std::string name;
  for (std::uint64_t value = 0; words >> name >> value;)
    if (name == key) return value;
  return std::nullopt;
}

std::optional<double> control_group_cores() {
  std::optional<double> least;
  for (const ControlGroup& group : control_groups("cpu")) {
    for (const std::string& folder : group.folders) {
      const auto cores = group.version == 2 ? cores_of_cpu_max(read_text(folder + "/cpu.max"))
                                            : cores_of_cfs(read_text(folder + "/cpu.cfs_quota_us"),
                                                           read_text(folder + "/cpu.cfs_period_us"));
      if (cores && (!least || *cores < *least)) least = cores;
    }
  }
  return least;
}

std::vector<MemoryGroup> limited_memory_groups() {
  std::vector<MemoryGroup> limited;
  for (const ControlGroup& group : control_groups("memory"))
    for (const std::string& folder : group.folders)
      if (const auto memory = memory_group(folder, group.version == 2)) limited.push_back(*memory);
  return limited;
}

std::optional<std::uint64_t> machine_out_of_memory_kills() {
  return value_of_key(read_text("/proc/vmstat"), "oom_kill");
}

OutOfMemoryCounts out_of_memory_counts() {
  OutOfMemoryCounts counts;
  counts.machine_kills = machine_out_of_memory_kills();
  for (const ControlGroup& group : control_groups("memory")) {
    const bool v2 = group.version == 2;
    // A kill counts in the victim's own group; groups above it tell of strangers too.
    const std::string own = read_text(group.folders.front() + (v2 ? "/memory.events" : "/memory.oom_control"));
    add(counts.group_kills, value_of_key(own, "oom_kill"));
    for (const std::string& folder : group.folders)
      counts.group_was_full = counts.group_was_full || (v2 ? was_full_v2(folder) : was_full_v1(folder));
  }
  return counts;
}

}  // namespace lockstep::base
