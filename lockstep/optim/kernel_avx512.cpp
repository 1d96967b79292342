#include "lockstep/optim/kernels.h"
#define LOCKSTEP_BUILD(name) name##_avx512
#include "lockstep/optim/kernel.h"
