#pragma once

// What --dry-run prints.

#include <string>

#include "lockstep/launch/plan.h"

namespace lockstep::launch {

/// The plan in words: command, workers, rules, and each worker's variables as far as they are
/// known before the start. Pure.
std::string describe_plan(const Plan& plan, const Environment& inherited, int cores);

/// A command as one would type it in a shell: words are quoted where a shell would take them apart.
std::string shell_words(const std::vector<std::string>& command);

}  // namespace lockstep::launch
