#define LOCKSTEP_KERNEL reduce_avx2
#include "lockstep/comm/reduce/kernel.h"
