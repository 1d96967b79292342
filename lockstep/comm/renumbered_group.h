#pragma once

// A group whose ranks have other numbers than the one that carries its bytes: split() by a key makes it. Internal.

#include <memory>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// `inner_of`: by the new number of each rank, its number in `inner`. Where nothing changes it is `inner` itself. A
/// group in another order has no node and no wire, for these say which rank is where. Reductions combine in the order
/// of `inner`.
std::shared_ptr<Group> renumbered(std::shared_ptr<Group> inner, std::vector<int> inner_of);

}  // namespace lockstep::comm
