#pragma once

// The flags of `lockstep run`.

#include <chrono>
#include <string>
#include <vector>

namespace lockstep::app {

struct RunOptions {
  int nproc_per_node = 1;
  std::chrono::milliseconds grace{10'000};
  std::vector<std::string> command;  ///< the program and its arguments, as typed
  bool help = false;
};

/// Reads what stands after `lockstep run`. Options end at the first word that is none, or at
/// "--"; a dash inside an option's name may be written as an underscore. Throws UsageError.
RunOptions parse_run_options(const std::vector<std::string>& arguments);

/// The text of `lockstep run --help`.
std::string run_help();

}  // namespace lockstep::app
