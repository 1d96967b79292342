#define LOCKSTEP_KERNEL reduce_avx2
#define LOCKSTEP_WIDEN widen_avx2
#define LOCKSTEP_NARROW narrow_avx2
#include "lockstep/comm/reduce/kernel.h"
