#pragma once

#include "lockstep/launch/machine/machine_report.h"

namespace lockstep::app {

/// How this program was built.
launch::Build own_build();

/// What the lockstep-trainer beside this program tells of its libtorch; runs it for at most 5 s.
launch::Section libtorch_of_trainer();

}  // namespace lockstep::app
