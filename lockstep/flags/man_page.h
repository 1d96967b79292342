#pragma once

#include <string>

#include "lockstep/flags/command.h"

namespace lockstep::flags {

/// "lockstep data fetch": "lockstep-data-fetch", under which `man` finds the page.
std::string page_name(const Place& place);

/// The manual page of a command, section 1, as roff: `man -l` shows it. `version` stands in its foot, "lockstep 0.1.0".
/// The command's table has a usage. Pure.
std::string man_page(const Command& root, const Place& place, const std::string& version);

}  // namespace lockstep::flags
