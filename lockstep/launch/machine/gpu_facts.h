#pragma once

// What the driver says of the GPUs, as facts for a person. Pure functions.

#include "lockstep/device/facts/driver.h"
#include "lockstep/launch/machine/facts.h"

namespace lockstep::launch {

/// "driver", "NVIDIA" (how many this process may use, or why none), a line for each GPU, "peer access" between several.
/// `kernel_driver`: the version in /proc, absent where there is none.
Section gpu_section(const device::DriverReport& report, const std::optional<std::string>& kernel_driver);

/// "580.95.05, CUDA 13.0": the driver's own version, by /proc where it does not say it itself.
std::string driver_text(const device::DriverReport& report, const std::optional<std::string>& kernel_driver);

}  // namespace lockstep::launch
