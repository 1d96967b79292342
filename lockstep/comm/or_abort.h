#pragma once

// What only one rank may fail at.

#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/network/wire.h"

namespace lockstep::comm {

/// Runs body(). What it throws is the group's failure: the others hear the reason instead of waiting.
template <class Body>
void or_abort(comm::Group& group, Body&& body) {
  try {
    body();
  } catch (const GroupAborted& aborted) {
    if (comm::Wire* const wire = group.wire()) wire->abort(aborted.failure());  // of this node: the others wait on
    throw;
  } catch (const std::exception& error) {
    group.abort(error.what(), exit_code(error));
    throw;
  }
}

}  // namespace lockstep::comm
