#pragma once

// The commands of `lockstep checkpoint` that read and write weights of files. Each takes its words, prints, and returns
// the exit code; UsageError for wrong words and files that cannot be read.

#include <string>
#include <vector>

namespace lockstep::app {

int export_command(const std::vector<std::string>& words);
int import_command(const std::vector<std::string>& words);
int diff_command(const std::vector<std::string>& words);
int average_command(const std::vector<std::string>& words);

}  // namespace lockstep::app
