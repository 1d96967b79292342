#include "lockstep/data/transforms/pixel_kernels.h"

#include <algorithm>

namespace lockstep::data {

std::span<const PixelKernels* const> pixel_kernel_builds() {
  static constexpr const PixelKernels* kBuilds[] = {&kPixelKernelsAvx512, &kPixelKernelsAvx2, &kPixelKernelsScalar};
  return kBuilds;
}

const PixelKernels& pixel_kernels() {
  static const PixelKernels& chosen =
      **std::ranges::find_if(pixel_kernel_builds(), [](const PixelKernels* build) { return build->supported(); });
  return chosen;
}

}  // namespace lockstep::data
