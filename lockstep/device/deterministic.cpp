#include "lockstep/device/deterministic.h"

#include <ATen/Context.h>

#include <cstdlib>

namespace lockstep::device {

void compute_deterministically() {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  context.setDeterministicFillUninitializedMemory(false);  // nobody reads it
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);  // what is fastest differs from run to run
}

}  // namespace lockstep::device
