#include "lockstep/launch/machine/gpu_facts.h"

#include "lockstep/base/text.h"
#include "lockstep/device/facts/decision.h"

namespace lockstep::launch {
namespace {

std::string gpu_text(const device::Gpu& gpu) {
  std::string text = gpu.name + ", " + base::size_text(gpu.total);
  if (gpu.free) text += " (" + base::size_text(*gpu.free) + " free)";
  text += ", compute capability " + std::to_string(gpu.compute_major) + "." + std::to_string(gpu.compute_minor);
  text += ", " + gpu.pci_id;
  if (gpu.numa_node) text += ", NUMA node " + std::to_string(*gpu.numa_node);
  return text;
}

}  // namespace

std::string driver_text(const device::DriverReport& report, const std::optional<std::string>& kernel_driver) {
  std::string text = !report.version.empty() ? report.version : kernel_driver.value_or("unknown");
  if (report.cuda > 0) text += ", CUDA " + device::cuda_version(report.cuda);
  return text;
}

Section gpu_section(const device::DriverReport& report, const std::optional<std::string>& kernel_driver) {
  Section section{"GPUs", {}};
  if (kernel_driver || report.cuda > 0) section.facts.push_back({"driver", driver_text(report, kernel_driver)});
  section.facts.push_back(
      {"NVIDIA", report.none.empty() ? std::to_string(report.gpus.size()) : "none (" + report.none + ")"});
  for (std::size_t i = 0; i < report.gpus.size(); ++i)
    section.facts.push_back({"GPU " + std::to_string(i), gpu_text(report.gpus[i])});
  if (report.gpus.size() > 1) section.facts.push_back({"peer access", device::peers_text(report.peers)});
  return section;
}

}  // namespace lockstep::launch
