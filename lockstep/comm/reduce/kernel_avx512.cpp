#define LOCKSTEP_KERNEL reduce_avx512
#define LOCKSTEP_WIDEN widen_avx512
#define LOCKSTEP_NARROW narrow_avx512
#include "lockstep/comm/reduce/kernel.h"
