#pragma once

// The commands of `lockstep checkpoint`, with their flags. `lockstep` has them too: it completes them and has their
// pages.

#include <string>

#include "lockstep/flags/command.h"

namespace lockstep::app {

/// What the tables of all commands read and write.
struct CheckpointCommandOptions {
  bool list_json = false;
  bool inspect_json = false;
  std::string export_names;
  std::string import_names;
};

flags::Table list_table(bool& json);
flags::Table inspect_checkpoint_table(bool& json);
flags::Table verify_table();
flags::Table export_table(std::string& names);
flags::Table import_table(std::string& names);
flags::Table diff_table();
flags::Table average_table();

flags::Command checkpoint_commands(CheckpointCommandOptions& options);

}  // namespace lockstep::app
