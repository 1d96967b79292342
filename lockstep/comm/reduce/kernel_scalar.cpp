#define LOCKSTEP_KERNEL reduce_scalar
#include "lockstep/comm/reduce/kernel.h"
