#include "lockstep/optim/kernels.h"
#define LOCKSTEP_BUILD(name) name##_avx2
#include "lockstep/optim/kernel.h"
