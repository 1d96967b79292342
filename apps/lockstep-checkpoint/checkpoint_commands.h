#pragma once

// The commands of `lockstep checkpoint`, with their flags. `lockstep` has them too: it completes them and has their
// pages.

#include "lockstep/flags/command.h"

namespace lockstep::app {

/// What the tables of all commands read and write.
struct CheckpointCommandOptions {
  bool list_json = false;
  bool inspect_json = false;
};

flags::Table list_table(bool& json);
flags::Table inspect_checkpoint_table(bool& json);
flags::Table verify_table();
flags::Table export_table();
flags::Table import_table();
flags::Table diff_table();
flags::Table average_table();

flags::Command checkpoint_commands(CheckpointCommandOptions& options);

}  // namespace lockstep::app
