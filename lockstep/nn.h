#pragma once

// Fused layers, and how a model gets them. Not part of lockstep.h: where both torch and lockstep are used as a whole
// (using namespace), `nn` would no longer be one name.

#include "lockstep/nn/batch_norm_relu.h"
#include "lockstep/nn/fuse.h"
#include "lockstep/nn/fusible.h"
#include "lockstep/nn/linear.h"
