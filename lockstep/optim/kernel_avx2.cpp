#include "lockstep/optim/kernels.h"
#define LOCKSTEP_KERNEL update_avx2
#define LOCKSTEP_MEASURE measure_avx2
#include "lockstep/optim/kernel.h"
