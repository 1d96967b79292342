#pragma once

// The same bits in every run on a device.

namespace lockstep::device {

/// From now on libtorch takes algorithms that give the same bits in every run on the same device, and warns once of an
/// operation that has none; cuBLAS is given the workspace that it needs for that, so before its first use. For the
/// process; before there are threads, since it sets an environment variable.
void compute_deterministically();

}  // namespace lockstep::device
