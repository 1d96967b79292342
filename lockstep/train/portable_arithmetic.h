#pragma once

// --arithmetic portable: libtorch's kernels as every CPU with AVX2 has them. Without libtorch, which reads these
// variables when it starts.

#include <string>

#include "lockstep/train/options.h"

namespace lockstep::train {

/// Sets what the options need in the environment of this process and those that it starts: with portable the vector
/// width of ATen and oneDNN, and MKL's reproducible branch, whatever they were. Returns whether a variable changed.
/// UsageError when the CPU has no AVX2 and FMA. Before threads are started.
bool set_arithmetic(const Options& options);

/// For a process that has loaded libtorch already: the same, and when a variable changed, the program starts again in
/// this process's place with the same arguments. Error when it cannot.
void start_with_arithmetic(const Options& options, char** argv);

}  // namespace lockstep::train
