#include "lockstep/optim/kernels.h"
#define LOCKSTEP_KERNEL update_scalar
#include "lockstep/optim/kernel.h"
