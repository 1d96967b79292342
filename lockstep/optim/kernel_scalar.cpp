#include "lockstep/optim/kernels.h"
#define LOCKSTEP_BUILD(name) name##_scalar
#include "lockstep/optim/kernel.h"
