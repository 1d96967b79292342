#pragma once

// Horovod's vocabulary, for programs that come from `import horovod.torch as hvd`:
//
//   namespace hvd = lockstep::horovod;
//   hvd::init();
//
// Thin: the collectives are those of comm/group.h. What differs is in docs/guide/horovod.md.

#include "lockstep/horovod/functions.h"
#include "lockstep/horovod/operations.h"
#include "lockstep/horovod/optimizer.h"
#include "lockstep/horovod/session.h"
