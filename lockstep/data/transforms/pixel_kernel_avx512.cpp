#include "lockstep/data/transforms/pixel_kernel.h"

namespace lockstep::data {

const PixelKernels kPixelKernelsAvx512 = {"avx512", [] { return __builtin_cpu_supports("avx512f") != 0; }, blend,
                                          normalize, normalize_framed};

}  // namespace lockstep::data
