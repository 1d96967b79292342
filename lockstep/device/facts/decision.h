#pragma once

// Which device it becomes, and why not: one line for each thing that can be missing. Pure, thread-safe.

#include <optional>
#include <string>

#include "lockstep/device/facts/wanted.h"

namespace lockstep::device {

/// What a process has found out about CUDA here. The versions are as CUDA writes them: 13020 is 13.2.
struct CudaFacts {
  std::string no_library;              ///< why there is no libtorch_cuda.so that can be loaded; "": there is one
  std::string no_driver;               ///< why the driver's library (libcuda.so.1) is not there; "": it is
  int driver = 0;                      ///< the newest CUDA that the driver can do; 0: not known
  int runtime = 0;                     ///< the CUDA that libtorch was built with; 0: not known
  int devices = 0;                     ///< that this process may use
  std::string error;                   ///< the runtime's words when it could not count them
  std::optional<std::string> visible;  ///< CUDA_VISIBLE_DEVICES, where it is set
};

/// "13.2" of 13020.
std::string cuda_version(int number);

/// Why no GPU can be used here, in one line; "" where one can.
std::string why_none(const CudaFacts& facts);

/// The number of the GPU that the process of this local rank computes on; nothing: the CPU. UsageError in one line when
/// what is wanted is not there. "auto" is the CPU where no GPU can be used; with fewer GPUs than ranks it is refused as
/// "cuda" is, since some ranks would be much slower than others.
std::optional<int> decide(const Wanted& wanted, int local_rank, const CudaFacts& facts);

/// What a launcher that knows no more than how many GPUs the driver shows refuses for all its workers: `workers` on
/// this node. With a driver that shows none it leaves that to them: a container may hide what they can use. UsageError
/// as decide() throws.
void require_for_workers(const Wanted& wanted, int workers, const CudaFacts& facts);

}  // namespace lockstep::device
