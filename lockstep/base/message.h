#pragma once

// What is shown of a caught exception. libtorch puts a call stack behind each message (c10::Error), pages of addresses
// that tell a user nothing; as in Python it is left out unless TORCH_SHOW_CPP_STACKTRACES=1. Thread-safe.

#include <exception>
#include <string>
#include <string_view>

namespace lockstep::base {

/// `what` without libtorch's call stack, whatever the environment says. Pure function.
std::string_view without_call_stack(std::string_view what);

/// what() for a person: without the call stack unless TORCH_SHOW_CPP_STACKTRACES=1.
std::string message_of(const std::exception& error);

/// what() on one line (base::shown), never with the call stack: of libtorch's messages the first line, which is the
/// message; for error files, reports and the control page. Of "" it is "".
std::string line_of(std::string_view what);

/// Whether TORCH_SHOW_CPP_STACKTRACES is 1.
bool call_stacks_wanted();

}  // namespace lockstep::base
