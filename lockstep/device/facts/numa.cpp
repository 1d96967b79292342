#include "lockstep/device/facts/numa.h"

#include <algorithm>
#include <cctype>
#include <fstream>

namespace lockstep::device {

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

}  // namespace lockstep::device
