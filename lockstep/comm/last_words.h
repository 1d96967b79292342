#pragma once

// What a program says when an exception leaves its main().

#include <memory>

#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// From now on std::terminate first writes the exception's what() into the group's error slot and,
/// when this rank was the first to fail, into the launcher's error file; so the report names it with
/// rank, step and phase, and the peers end at once. Then the handler that was there before runs,
/// which prints and aborts. A rank that was only thrown out by another's failure (GroupAborted) ends
/// quietly with that failure's exit code. A group that is gone is left alone; a later call replaces the group.
void speak_before_terminating(const std::shared_ptr<Group>& group);

}  // namespace lockstep::comm
