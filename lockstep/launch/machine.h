#pragma once

// What the launcher asks of the machine.

#include <string>

namespace lockstep::launch {

/// A TCP port that nobody on 127.0.0.1 uses at this moment. It is not held: whoever binds it
/// must be ready to lose a race. Throws Error when there is none.
int free_port();

/// This machine's name, for messages.
std::string host_name();

/// Sixteen random hexadecimal digits.
std::string random_id();

}  // namespace lockstep::launch
