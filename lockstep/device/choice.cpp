#include "lockstep/device/choice.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "lockstep/device/cuda_library.h"
#include "lockstep/device/cuda_runtime.h"
#include "lockstep/device/facts/wanted.h"

namespace lockstep::device {

CudaFacts find_cuda() {
  CudaFacts facts;
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible = visible;
  facts.no_library = why_no_cuda_library();
  if (!facts.no_library.empty()) return facts;
  // The runtime's own words for this are those for a driver that is too old.
  if (dlopen("libcuda.so.1", RTLD_LAZY) == nullptr) {
    facts.no_driver = dlerror();
    return facts;
  }
  const CudaRuntime* const runtime = cuda_runtime();
  if (runtime == nullptr) {
    facts.no_library = "libtorch brings no libcudart: scripts/bootstrap --cuda installs it";
    return facts;
  }
  runtime->driver_version(&facts.driver);
  runtime->runtime_version(&facts.runtime);
  if (const int error = runtime->device_count(&facts.devices); error != 0) {
    facts.devices = 0;
    facts.error = words_of(*runtime, error);
  }
  return facts;
}

at::Device choose(std::string_view text, int local_rank) {
  const Wanted wanted = parse_wanted(text);
  if (wanted.kind == WantedKind::cpu) return at::Device(at::kCPU);
  const std::optional<int> index = decide(wanted, local_rank, find_cuda());
  if (!index) return at::Device(at::kCPU);
  load_cuda_library();
  return at::Device(at::kCUDA, at::DeviceIndex(*index));
}

}  // namespace lockstep::device
