#define LOCKSTEP_KERNELS kKernelsAvx512
#include "lockstep/nn/kernel.h"
