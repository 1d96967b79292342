#pragma once

// lockstep doctor --nnodes: the doctor as a job of its own, with one worker on each node. So who may take part, where
// they meet and under which key is what `lockstep run` says, refusals included.

#include "commands.h"

namespace lockstep::app {

/// Looks at this machine, then runs the job with `lockstep doctor --member` as its worker. On node 0 it prints what was
/// found, on the others where that stands. Returns 0 or 1, the same on all nodes, or the job's own exit code.
int doctor_of_nodes(const DoctorOptions& options);

/// The worker. options.member: a file with what this machine's doctor has found, which is overwritten with the exit
/// code, in one figure, and what is to be printed.
int member_of_doctors(const DoctorOptions& options);

}  // namespace lockstep::app
