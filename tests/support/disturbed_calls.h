#pragma once

#include <functional>

namespace lockstep::support {

enum class CallKind {
  any,
  of_files,  ///< open, read, write, sync, rename, ... : those that a disk can make fail
};

/// How a body ended, one of whose system calls was disturbed.
struct Disturbed {
  bool reached = false;  ///< it made so many; else nothing was disturbed
  long number = 0;       ///< of the call
  int code = 0;          ///< what the body returned; 128 + signal when a signal ended it
};

/// Runs `body` in a forked child. At its `count`-th system call of the kind, from 1, the child is killed when `error`
/// is 0; else the call is not made and fails with that errno. `body` must not call getppid(). Throws std::runtime_error
/// where the system does not allow to watch a child, or on another processor than x86-64.
Disturbed with_disturbed_call(CallKind kind, int count, int error, const std::function<int()>& body);

}  // namespace lockstep::support
