#pragma once

// How many cores this process may use.

#include <string_view>

namespace lockstep::base {

/// Cores of this process: its affinity, cut by the processor limits of its control groups
/// (version 2, rounded up). At least 1.
int usable_cores();

/// The cores a control group grants by the text of its cpu.max ("150000 100000" is 2, "max
/// 100000" is 0 for no limit). Pure; 0 as well for text of another form.
int cores_of_cpu_max(std::string_view text);

}  // namespace lockstep::base
