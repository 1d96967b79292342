#include "lockstep/device/facts/numa.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>

namespace lockstep::device {
namespace {

std::optional<int> number_of(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return {};
  return number;
}

std::string model_of(const std::filesystem::path& gpu) {
  std::ifstream file(gpu / "information");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Model")) return line;
  return "";
}

}  // namespace

std::optional<int> numa_node_of(const std::string& pci_id, const std::filesystem::path& sys) {
  std::string id = pci_id;
  std::transform(id.begin(), id.end(), id.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  // The kernel writes at least 4 digits of the domain, the management library 8.
  while (id.find(':') > 4 && id.find(':') != std::string::npos && id.front() == '0') id.erase(0, 1);
  std::ifstream file(sys / "bus/pci/devices" / id / "numa_node");
  int node = -1;
  if (!(file >> node) || node < 0) return {};
  return node;
}

std::vector<std::string> gpus_of_driver(const std::filesystem::path& proc) {
  std::vector<std::string> ids;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(proc / "driver/nvidia/gpus", error), end; !error && entry != end;
       entry.increment(error))
    ids.push_back(entry->path().filename());
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<std::optional<int>> numa_nodes_of_gpus(const std::optional<std::string>& visible,
                                                   const std::optional<std::string>& order,
                                                   const std::filesystem::path& proc,
                                                   const std::filesystem::path& sys) {
  const std::vector<std::string> ids = gpus_of_driver(proc);
  std::set<std::string> models;
  for (const std::string& id : ids) models.insert(model_of(proc / "driver/nvidia/gpus" / id));
  // The fastest card comes first, unless the order of the bus is asked for.
  if (models.size() > 1 && order != "PCI_BUS_ID") return {};
  std::vector<std::optional<int>> all, seen;
  for (const std::string& id : ids) all.push_back(numa_node_of(id, sys));
  if (!visible) return all;
  std::istringstream entries(*visible);
  for (std::string entry; std::getline(entries, entry, ',');) {
    if (entry.starts_with('-')) break;
    const std::optional<int> index = number_of(entry);
    if (!index) return {};
    if (std::size_t(*index) >= all.size()) break;  // as CUDA does
    seen.push_back(all[std::size_t(*index)]);
  }
  return seen;
}

std::vector<int> cores_of_node(int node, const std::filesystem::path& sys) {
  std::ifstream file(sys / "devices/system/node" / ("node" + std::to_string(node)) / "cpulist");
  std::vector<int> cores;
  for (std::string range; std::getline(file, range, ',');) {
    while (!range.empty() && std::isspace(static_cast<unsigned char>(range.back()))) range.pop_back();
    const std::size_t dash = range.find('-');
    const std::optional<int> first = number_of(std::string_view(range).substr(0, dash));
    const std::optional<int> last =
        dash == std::string::npos ? first : number_of(std::string_view(range).substr(dash + 1));
    if (!first || !last) continue;
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
  }
  return cores;
}

std::vector<std::vector<int>> cores_near_gpus(const std::vector<int>& gpus,
                                              const std::vector<std::optional<int>>& nodes_of_gpus,
                                              const std::vector<int>& allowed, const std::filesystem::path& sys) {
  std::vector<std::vector<int>> all;
  for (const int gpu : gpus) {
    std::vector<int>& mine = all.emplace_back();
    if (gpu < 0 || std::size_t(gpu) >= nodes_of_gpus.size() || !nodes_of_gpus[std::size_t(gpu)]) continue;
    const std::vector<int> near = cores_of_node(*nodes_of_gpus[std::size_t(gpu)], sys);
    std::ranges::set_intersection(near, allowed, std::back_inserter(mine));
  }
  return all;
}

}  // namespace lockstep::device
