#pragma once

// A rank's own cores. Bound to them, its computing thread is never moved and its caches stay warm; unbound, the
// scheduler may put two ranks on one core for a while, and every step waits for the slower one. Threads that a bound
// thread starts are bound with it, so threads that only help (loaders) call leave_own_cores() first.

#include <vector>

namespace lockstep::base {

/// Binds the calling thread, and those that it will start, to the cores of local rank `local_rank` of `local_size`
/// ranks with `threads` computing threads each. Counted in the cores that the process may use: its affinity, which
/// mpirun, srun and containers set. UsageError when they, or the processor limit of a control group, do not suffice
/// for all ranks of the node. A process that was given no more cores than its threads need has its own already.
void bind_to_own_cores(int local_rank, int local_size, int threads);

/// Lets the calling thread run where the process could before bind_to_own_cores(). Without binding: nothing.
void leave_own_cores();

/// The rule, pure: the cores of a rank among those that are allowed, in their order. Empty: they do not suffice.
std::vector<int> cores_of_rank(const std::vector<int>& allowed, int local_rank, int local_size, int threads);

}  // namespace lockstep::base
