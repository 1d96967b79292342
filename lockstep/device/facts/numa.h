#pragma once

// Where GPUs are in the machine, read out of the kernel's files.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::device {

/// The NUMA node of a PCI device ("0000:3b:00.0", in capitals or not, as CUDA writes it with 4 or 8 digits of the
/// domain) by `sys`/bus/pci/devices/ID/numa_node. Nothing where the kernel says -1 (one node, or a virtual machine that
/// hides it) or has no such file.
std::optional<int> numa_node_of(const std::string& pci_id, const std::filesystem::path& sys = "/sys");

/// The PCI ids of the GPUs that the driver shows, in the order of the bus: the folders of `proc`/driver/nvidia/gpus.
std::vector<std::string> gpus_of_driver(const std::filesystem::path& proc = "/proc");

}  // namespace lockstep::device
