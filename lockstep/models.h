#pragma once

// Models for pictures, with PyTorch's initial weights of the same seed.

#include "lockstep/models/convnet.h"
#include "lockstep/models/image_model.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/registry.h"
#include "lockstep/models/resnet.h"
