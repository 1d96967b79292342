#pragma once

// The optimizers of the shared state, their options and formulas (rule.h has the list).

#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/rule.h"
