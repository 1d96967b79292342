#pragma once

// main() of a program that measures.

#include <functional>

#include "lockstep/flags/parse.h"

namespace lockstep::bench {

/// Reads the flags, calls body() and returns the exit code: 2 after one line of error for wrong flags and a
/// UsageError, 1 for what else body() throws, of libtorch without its call stack (base/message.h).
int run_program(const flags::Table& table, int argc, const char* const* argv,
                const std::function<void(const flags::Parsed& parsed)>& body);

}  // namespace lockstep::bench
