#pragma once

// Weights in files, as safetensors and as torch.save writes them; whole checkpoints of a job, from which it goes on.

#include "lockstep/checkpoint/background_saver.h"
#include "lockstep/checkpoint/classic.h"
#include "lockstep/checkpoint/python_files.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/save.h"
#include "lockstep/checkpoint/store/verify.h"
#include "lockstep/checkpoint/weights.h"
