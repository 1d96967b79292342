#pragma once

// What the launcher asks of the machine.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::launch {

/// From the kernel's generator. Throws Error.
std::uint64_t random_number();

/// Whether a name or an address ("::1", "[::1]", "10.0.0.3", "node7.local") is one of this machine's:
/// it resolves to an address that can be bound here. Asks the system's resolver.
bool is_local_address(const std::string& name);

/// This machine's name, for messages.
std::string host_name();

/// Seconds since the epoch: comparable with the times of files.
double wall_clock();

/// A random identifier in the form of a UUID.
std::string random_id();

/// How many GPUs a worker may use: the entries of `visible` (CUDA_VISIBLE_DEVICES) when it is
/// given, else those that the driver shows.
int count_gpus(const std::string* visible);

/// The machine's NUMA nodes, at least 1.
int count_numa_nodes();

/// The cores that this process may use near the GPU of each worker (worker i computes on gpus[i]), by the NUMA nodes
/// that the kernel tells. Empty on a machine with one, and an empty list for a worker whose GPU's place is not known.
std::vector<std::vector<int>> cores_of_workers(const std::vector<int>& gpus);

}  // namespace lockstep::launch
