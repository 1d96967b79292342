#include "lockstep/data/transforms/pixel_kernel.h"

namespace lockstep::data {

const PixelKernels kPixelKernelsAvx2 = {
    "avx2", [] { return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0; }, blend, normalize,
    normalize_framed};

}  // namespace lockstep::data
