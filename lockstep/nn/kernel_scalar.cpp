#define LOCKSTEP_KERNELS kKernelsScalar
#include "lockstep/nn/kernel.h"
