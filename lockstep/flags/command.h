#pragma once

// The commands of a program as a tree. Each has the table of its flags, so that the list of commands, completion
// (completion.h) and manual pages (man_page.h) are made of what the parser reads.

#include <string>
#include <vector>

#include "lockstep/flags/table.h"

namespace lockstep::flags {

/// A command with its flags, or one that has commands of its own.
struct Command {
  std::string name;     ///< as it is typed, "train"; of the root the program's name
  std::string summary;  ///< one line without a full stop, for the list of commands
  /// Its flags. Without a usage: they are known to another program alone, which tells them when asked by --help.
  Table table = {};
  std::vector<std::string> words = {};  ///< what its operands may be; empty: files, where it takes any
  std::vector<Command> commands = {};   ///< its own; it takes no flags then but --help and --version
};

/// The text of --help of a command that has others: usage, the list, and what its table says after that.
std::string help(const Command& command);

/// The names of its commands.
std::vector<std::string> names_of(const Command& command);

/// A command and how it is typed from the root on, "lockstep data fetch".
struct Place {
  std::string path;
  const Command* command;
};

/// The root and all commands below it, each before its own. The places point into `root`.
std::vector<Place> places_of(const Command& root);

/// The place of the command that is typed so, {"data", "fetch"}; no words: the root. UsageError that names the nearest
/// command.
Place find_place(const Command& root, const std::vector<std::string>& words);

}  // namespace lockstep::flags
