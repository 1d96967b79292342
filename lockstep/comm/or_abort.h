#pragma once

// What only one rank may fail at.

#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// Runs body(). What it throws is the group's failure: the others hear the reason instead of waiting.
template <class Body>
void or_abort(comm::Group& group, Body&& body) {
  try {
    body();
  } catch (const GroupAborted&) {
    throw;
  } catch (const std::exception& error) {
    group.abort(error.what(), exit_code(error));
    throw;
  }
}

}  // namespace lockstep::comm
