#pragma once

// What a bug report must say about the machine: the facts behind `lockstep env`. Reads /proc, /sys and the
// environment, asks the driver of GPUs where there is one, and measures in some tens of milliseconds how memory is
// written best; starts nothing. What cannot be read says "unknown (why)".

#include <string>
#include <vector>

#include "lockstep/launch/machine/facts.h"
#include "lockstep/launch/machine/probe.h"

namespace lockstep::launch {

/// How this program was built.
struct Build {
  std::string version;   ///< "0.1.0"
  std::string commit;    ///< empty: not built in a git repository
  std::string compiler;  ///< "GNU 12.2.0"
  std::string type;      ///< "RelWithDebInfo"
};

/// Sections: versions, processor, memory, limits, GPUs, programs in PATH, environment.
/// `environment` is "NAME=value" entries.
std::vector<Section> machine_report(const Build& build, const std::vector<std::string>& environment);

/// The facts about libtorch as lockstep-trainer --libtorch tells them in lines of "key=value", or
/// why it could not. Pure.
Section libtorch_section(const std::string& trainer, const ProbeResult& probe);

}  // namespace lockstep::launch
