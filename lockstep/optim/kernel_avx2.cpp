#include "lockstep/optim/kernels.h"
#define LOCKSTEP_KERNEL update_avx2
#include "lockstep/optim/kernel.h"
