#pragma once

// libtorch's CUDA part in a program that is linked with the CPU part only: loaded when a GPU is asked for.

#include <string>

namespace lockstep::device {

/// A file beside the libtorch_cpu.so of this process, whether it is there or not.
std::string libtorch_file(const std::string& name);

/// Why libtorch_cuda.so cannot be loaded: it is not there. "": it is. Loads nothing.
std::string why_no_cuda_library();

/// Loads libtorch_cuda.so (436 MB of file, about 2 s) unless that has been done. UsageError in one line when it does
/// not load, or when something in the process has asked libtorch about CUDA before: libtorch remembers the answer that
/// it gave without its CUDA part (torch::manual_seed asks, for example). Thread-safe.
void load_cuda_library();

}  // namespace lockstep::device
