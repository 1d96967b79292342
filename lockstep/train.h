#pragma once

// The whole trainer in a program of one's own: with its flags, or around a loop without the loop.

#include "lockstep/train/main.h"
#include "lockstep/train/trainer.h"
#include "lockstep/train/trainer_observers.h"
