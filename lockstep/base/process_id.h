#pragma once

namespace lockstep::base {

/// getpid() without the system call: cheap enough to ask before each word to a peer whether this process is the one
/// that joined the group, or a child that it forked.
int process_id();

}  // namespace lockstep::base
