#include "lockstep/optim/kernels.h"
#define LOCKSTEP_KERNEL update_avx512
#include "lockstep/optim/kernel.h"
