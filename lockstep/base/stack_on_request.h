#pragma once

// Where a rank is that others wait for: asked by a signal, it writes its call stack to standard error itself.
//
// The signal is SIGURG, which does nothing to a process without a handler for it, one that has become another program
// by exec() for instance. There is a handler of ours only where the program has left the signal as it was. It does
// what handlers may: it takes no memory and none of this library's locks, and a terminal or a pipe that takes nothing
// misses the text rather than hold up the process; nor does a broken pipe, or a file at its limit, end it. A terminal
// or pipe that cannot be opened again (outlet.h) gets none.
//
// System calls that it interrupts go on, but for those that never do (signal(7)): poll(), nanosleep() and their like
// end with EINTR.

namespace lockstep::base {

/// So many ranks are asked in a wait at most: more stacks would hide what was said before.
inline constexpr int kMostAsked = 4;

/// From now on the calling thread's stack is written, in the name of `rank`, when another process or a person
/// (`kill -URG PID`) sends the signal. Returns false, and changes nothing, where the program handles or ignores it. A
/// later call is for its own thread and rank.
bool write_stack_when_asked(int rank);

/// Whether that is so, now.
bool writes_stack_when_asked();

/// Asks the process that `pidfd` is of: never another one that has got its number. Waits for nobody.
void ask_for_stack(int pidfd);

}  // namespace lockstep::base
