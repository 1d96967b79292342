#pragma once

// What a program says when an exception leaves its main().

#include <memory>

#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// From now on std::terminate first writes the exception's what() into the group's error slot and,
/// when this rank was the first to fail, into the launcher's error file; so the report names it with
/// rank, step and phase, and the peers end at once. A rank that was only thrown out by another's failure
/// (GroupAborted) ends quietly with that failure's exit code. An Error of ours ends the process with exit_code(error),
/// so that wrong input (UsageError) is no reason to start the job again, and with a line on standard error, which names
/// the rank where there are several; none when another rank was the first to fail, or when `agent_reports` and our
/// agent tells of it. After any other exception the handler that was there before runs, which prints and aborts.
/// `group` may be none: nobody has been joined yet. One that is gone is left alone, and the error file written all the
/// same. A later call replaces both.
void speak_before_terminating(const std::shared_ptr<Group>& group, bool agent_reports);

}  // namespace lockstep::comm
