#pragma once

// The device that a process computes on.

#include <c10/core/Device.h>

#include <string_view>

#include "lockstep/device/facts/decision.h"

namespace lockstep::device {

/// "cpu", "cuda" (the GPU of the local rank's number), "cuda:N", or "auto" (as "cuda" where a GPU can be used, else the
/// CPU). For a GPU libtorch's CUDA part is loaded (2 s): before anything asks libtorch about CUDA, torch::manual_seed()
/// for example. "cuda:0" for all ranks puts them on one GPU. The current device stays as it is. UsageError in one line
/// when the device cannot be had, or text is none of these. Thread-safe.
at::Device choose(std::string_view text, int local_rank);

/// What there is of CUDA for this process. Loads nothing but the driver (0.1 s), and nothing at all where there is no
/// libtorch_cuda.so. Thread-safe.
CudaFacts find_cuda();

}  // namespace lockstep::device
