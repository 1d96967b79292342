#pragma once

// Groups for tests of programs: one that talks to nobody, one that remembers what is called, one that fails on purpose.

#include "lockstep/comm/stand_ins/failing_group.h"
#include "lockstep/comm/stand_ins/fake_group.h"
#include "lockstep/comm/stand_ins/recording_group.h"
