#include "lockstep/optim/kernels.h"
#define LOCKSTEP_KERNEL update_avx512
#define LOCKSTEP_MEASURE measure_avx512
#include "lockstep/optim/kernel.h"
