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

/// The NUMA node of each GPU in CUDA's numbering for a process with these variables of the environment
/// (CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; nothing: not set). Nothing for a GPU whose place is not known. Empty
/// where CUDA's numbering is not known without asking CUDA: cards of several models without
/// CUDA_DEVICE_ORDER=PCI_BUS_ID, or a list by other words than numbers.
std::vector<std::optional<int>> numa_nodes_of_gpus(const std::optional<std::string>& visible,
                                                   const std::optional<std::string>& order,
                                                   const std::filesystem::path& proc = "/proc",
                                                   const std::filesystem::path& sys = "/sys");

/// The cores of a NUMA node, ascending: "0-3,8" of `sys`/devices/system/node/nodeN/cpulist. Empty where it has none.
std::vector<int> cores_of_node(int node, const std::filesystem::path& sys = "/sys");

/// The cores that each worker of a node keeps to: those of its GPU's NUMA node that are `allowed` (ascending). Worker i
/// computes on gpus[i]. Empty for a worker that may stay where it likes: its GPU's node is not known, or the worker may
/// use none of its cores.
std::vector<std::vector<int>> cores_near_gpus(const std::vector<int>& gpus,
                                              const std::vector<std::optional<int>>& nodes_of_gpus,
                                              const std::vector<int>& allowed,
                                              const std::filesystem::path& sys = "/sys");

}  // namespace lockstep::device
