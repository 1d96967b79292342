#pragma once

// How many cores this process may use.

#include <optional>
#include <string>
#include <vector>

namespace lockstep::base {

/// Cores of this process: its affinity, cut by the processor limits of its control groups
/// (rounded up). At least 1.
int usable_cores();

/// The same for several processes together: the cores that any of them may use. Processes that cannot
/// be asked, for they have ended, are left out.
int usable_cores(const std::vector<int>& processes);

/// Of `affinity` cores those that processor time of `granted` cores can use (none: no limit). Pure.
int usable_of(int affinity, std::optional<double> granted);

/// "1 process of 1 thread use 1 of 2 cores" where processes with so many computing threads each leave cores idle, else
/// nothing. Pure.
std::string idle_cores_text(int processes, int threads, int cores);

/// The cores of this thread's affinity, which the process's threads inherit. At least 1.
int affinity_cores();

/// Which ones, ascending.
std::vector<int> affinity_list();

}  // namespace lockstep::base
