#include "lockstep/data/transforms/pixel_kernel.h"

namespace lockstep::data {

const PixelKernels kPixelKernelsScalar = {"scalar", [] { return true; }, blend, nullptr, nullptr};

}  // namespace lockstep::data
