#pragma once

// What the launcher asks of the machine.

#include <string>
#include <string_view>

namespace lockstep::launch {

/// Cores this process may use: its affinity, cut by the processor limits of its control
/// groups (rounded up). At least 1.
int usable_cores();

/// The cores a control group grants by the text of its cpu.max ("150000 100000" is 2, "max
/// 100000" is 0 for no limit). Pure; 0 as well for text of another form.
int cores_of_cpu_max(std::string_view text);

/// A TCP port that nobody on 127.0.0.1 uses at this moment. It is not held: whoever binds it
/// must be ready to lose a race. Throws Error when there is none.
int free_port();

/// This machine's name, for messages.
std::string host_name();

/// Sixteen random hexadecimal digits.
std::string random_id();

}  // namespace lockstep::launch
