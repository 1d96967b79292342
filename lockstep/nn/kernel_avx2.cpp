#define LOCKSTEP_KERNELS kKernelsAvx2
#include "lockstep/nn/kernel.h"
