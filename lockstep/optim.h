#pragma once

// The optimizers of the shared state, their options and formulas (rule.h has the list), and schedules of their rates.

#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/rule.h"
#include "lockstep/optim/schedules/composed.h"
#include "lockstep/optim/schedules/cosine.h"
#include "lockstep/optim/schedules/cyclic.h"
#include "lockstep/optim/schedules/factors.h"
#include "lockstep/optim/schedules/one_cycle.h"
#include "lockstep/optim/schedules/plateau.h"
#include "lockstep/optim/schedules/schedule.h"
