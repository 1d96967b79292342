#pragma once

// What a run is called, for as long as it may be started again.

#include <sys/types.h>

#include <functional>
#include <string>

#include "lockstep/rendezvous/environment.h"

namespace lockstep::rendezvous {

/// Tells a process from every other that has run or will, on any machine: pid, time of its start, boot.
using ProcessName = std::function<std::string(pid_t)>;

/// One line, equal for all attempts of a job and different for every other job:
///
///   lockstep run, train   TORCHELASTIC_RUN_ID, which is random or given by --rdzv-id, and the agent's process
///   torchrun              TORCHELASTIC_RUN_ID, which is `none` for every job with static rendezvous, and torchrun's
///                         process. A script between torchrun and the worker must exec the worker: it would be another
///                         process in each attempt
///   mpirun, mpiexec       its name of the job and the process that started the ranks: each start is a run of its own
///   srun                  cluster, job and step, and no process: a job that SLURM queues again keeps them
///   by hand               a number that rank 0 has drawn: each start is a run of its own
///   alone                 this process: each start is a run of its own
///
/// `self` and `parent` are the processes of this rank and of what started it.
std::string run_id(const Place& place, const GetEnv& get, const ProcessName& name, pid_t self, pid_t parent);

/// The same of this process.
std::string run_id(const Place& place);

/// "pid 71 started at 99120 of boot 1b4e28ba-…" from the texts of /proc/71/stat (field 22, clock ticks) and
/// /proc/sys/kernel/random/boot_id. Pure function; what is missing reads "?".
std::string process_name(pid_t pid, const std::string& stat, const std::string& boot_id);

}  // namespace lockstep::rendezvous
