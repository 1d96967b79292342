#pragma once

// The commands of `lockstep data`. Each takes what stands after its name, and returns the exit code or throws.

#include <string>
#include <vector>

namespace lockstep::app {

int fetch_command(const std::vector<std::string>& words);
int inspect_command(const std::vector<std::string>& words);

}  // namespace lockstep::app
