#pragma once

// Reading a command line by a table. Errors are one line.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/flags/flag_file.h"
#include "lockstep/flags/table.h"

namespace lockstep::flags {

/// Who gave a flag its value, in the order in which they are read: a later one wins, and what nobody gave is the
/// default.
enum class Source { file, environment, command_line };

/// Returns a variable's value, or null when it is not set.
using GetEnv = std::function<const char*(const char*)>;

struct Parsed {
  std::string text;                   ///< what was asked for instead (--help, --version); print it and exit with 0
  std::vector<std::string> operands;  ///< the words that belong to no flag
  /// Of each flag of the table, by its long name: who gave it, once for every time. Empty: nobody.
  std::map<std::string, std::vector<Source>> sources;

  /// Whether anybody gave the flag, which for some differs from what the default is. Throws std::out_of_range for a
  /// name that is not in the table.
  bool given(const std::string& name) const { return !sources.at(name).empty(); }
};

/// Reads `words` (without the program's name) and, where the table says so, the environment by `get`, into the options
/// of the table. A flag is written "--flag value", "--flag=value", or short, "-f value", "-fvalue"; a value that is a
/// word of its own does not begin with "--". A switch is written "--flag", or "--flag=0" where it is to be off whatever
/// environment and files say: then it counts as not given. Where --help or --version stands among the flags, nothing
/// else is read, whatever is wrong with the others. An empty `get`: no variable is set.
/// What the command line and the environment leave open, `files` may say, a later one before an earlier one. A value
/// there that is null or the default counts as not given: a record of all flags says no more than what was asked for.
/// UsageError for the first thing that is wrong, with the table's prefix: an unknown flag (the nearest is named), a
/// value missing, too much or wrong, a word that belongs to no flag, a flag given twice.
Parsed parse(const Table& table, const std::vector<std::string>& words, const GetEnv& get = {},
             const std::vector<FlagFile>& files = {});

}  // namespace lockstep::flags
