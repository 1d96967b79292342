#pragma once

// Whether the ranks have the same weights, where each has its own (the classic path).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/named_tensors.h"

namespace lockstep::parallel {

struct Diverged {
  int rank = 0;
  std::size_t parameter = 0;
};

/// The first parameter of which not all ranks have the same hash, and the first rank whose hash is not that of most;
/// where as many have one as another, the lower rank's counts. `hashes`: by rank, by parameter. Pure.
std::optional<Diverged> find_diverged(const std::vector<std::vector<std::int64_t>>& hashes);

/// Collective: reads each parameter once and sends 8 bytes for it. Error on all ranks naming what diverged, behind step
/// `step`; the group can be used afterwards. -0 and 0 differ, and so do NaNs of other bits.
void check_replicas(comm::Group& group, const NamedTensors& parameters, std::uint64_t step);

}  // namespace lockstep::parallel
