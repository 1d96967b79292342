#pragma once

// What a report says of the machine it was made on.

#include <cstddef>
#include <string>

namespace lockstep::bench {

struct Machine {
  std::string cpu;  ///< model name as the kernel gives it, and instruction_sets()
  int cores = 0;    ///< this process may use
  std::size_t memory_bytes = 0;
  std::string kernel;
  double load = 0;  ///< 1-minute load average before the measurement
};

Machine read_machine();

/// Of what the kernel says that a CPU has, those that decide how fast products are: " with avx2, amx_bf16". Empty: none
/// of them. report_parts.py names the same.
std::string instruction_sets(const std::string& flags);

}  // namespace lockstep::bench
