#pragma once

// The whole trainer in a program of one's own.

#include "lockstep/train/main.h"
