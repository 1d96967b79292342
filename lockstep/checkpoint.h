#pragma once

// Weights in files, as safetensors.

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/weights.h"
