#pragma once

// Optimizers of the shared state: SGD, Adam, AdamW, and the formulas that they compute.

#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/rule.h"
