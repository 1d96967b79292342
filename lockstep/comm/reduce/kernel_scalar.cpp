#define LOCKSTEP_KERNEL reduce_scalar
#define LOCKSTEP_WIDEN widen_scalar
#define LOCKSTEP_NARROW narrow_scalar
#include "lockstep/comm/reduce/kernel.h"
