#pragma once

// What NVIDIA's driver says of its GPUs, by its libraries libcuda.so.1 and libnvidia-ml.so.1, which are loaded when
// they are there: no CUDA toolkit and no libtorch is needed, and no memory on a GPU is taken.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::device {

/// A GPU that this process may use, in CUDA's order (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER).
struct Gpu {
  std::string name;                   ///< "NVIDIA H100 80GB HBM3"
  std::string pci_id;                 ///< "0000:3b:00.0"
  std::uint64_t total = 0;            ///< bytes
  std::optional<std::uint64_t> free;  ///< bytes, where the management library is
  std::optional<int> numa_node;       ///< where the kernel says
  int compute_major = 0;              ///< 9 of compute capability 9.0
  int compute_minor = 0;
};

struct DriverReport {
  std::string none;     ///< why there is no GPU that can be used, one line; "": there is one
  int cuda = 0;         ///< the newest CUDA that the driver can do, 13020 for 13.2; 0: not known
  std::string version;  ///< the driver's own ("580.95.05"), where the management library is; else ""
  std::vector<Gpu> gpus;
  std::vector<std::vector<bool>> peers;  ///< [i][j]: i reads the memory of j directly; i with itself: true
};

/// The names by which the libraries are opened.
struct DriverLibraries {
  std::string cuda = "libcuda.so.1";
  std::string management = "libnvidia-ml.so.1";
};

/// Why the driver's library cannot be opened, one line; "": it can. Starts nothing of it, unlike ask_driver().
std::string why_no_driver(const DriverLibraries& libraries = {});

/// Asks now. A first call in a process takes about 0.1 s with a driver, nothing without. Thread-safe.
DriverReport ask_driver(const DriverLibraries& libraries = {});

/// The version of NCCL that a library has ("2.28.9"), "" when it cannot be opened or is none. Looked for by
/// `LOCKSTEP_NCCL` of the environment, else by `beside` (libtorch's folder: where its wheels put it), else by name.
/// `file` becomes what was opened.
std::string nccl_version(const std::string& beside, std::string* file = nullptr);

/// "2.28.9" of 22809, as NCCL counts since 2.9; "2.8.3" of 2803.
std::string nccl_version_text(int number);

/// Who reads whose memory directly, in words: "all pairs", "none", or "0-1, 2-3".
std::string peers_text(const std::vector<std::vector<bool>>& peers);

}  // namespace lockstep::device
