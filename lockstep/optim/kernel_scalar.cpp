#include "lockstep/optim/kernels.h"
#define LOCKSTEP_KERNEL update_scalar
#define LOCKSTEP_MEASURE measure_scalar
#include "lockstep/optim/kernel.h"
