#pragma once

// What a report says of the machine it was made on.

#include <cstddef>
#include <string>

namespace lockstep::bench {

struct Machine {
  std::string cpu;  ///< model name as the kernel gives it
  int cores = 0;    ///< this process may use
  std::size_t memory_bytes = 0;
  std::string kernel;
  double load = 0;  ///< 1-minute load average before the measurement
};

Machine read_machine();

}  // namespace lockstep::bench
