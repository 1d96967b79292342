#define LOCKSTEP_KERNEL reduce_avx512
#include "lockstep/comm/reduce/kernel.h"
