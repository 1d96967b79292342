#pragma once

// For commands that may themselves be started by a launcher.

#include "lockstep/rendezvous/environment.h"

namespace lockstep::app {

/// Whether this process is a worker by torchrun's contract (RANK is set), whatever the world.
/// A single task of mpirun or srun is not: it may well be meant as the agent of several.
bool has_torch_contract(const rendezvous::Place& place);

/// Call it before a complaint that every rank of the job would make: on ranks other than 0 it
/// waits 2 s, in which rank 0 complains and the launcher ends the rest. It returns only when
/// that did not happen; the complaint is then this rank's own.
void let_rank_zero_speak(const rendezvous::Place& place);

}  // namespace lockstep::app
