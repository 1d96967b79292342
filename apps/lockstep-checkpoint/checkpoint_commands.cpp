#include "apps/lockstep-checkpoint/checkpoint_commands.h"

#include "lockstep/flags/values.h"

namespace lockstep::app {

flags::Table list_table(bool& json) {
  return {.usage = "lockstep checkpoint list FOLDER [options]",
          .about =
              "Says which checkpoints there are, the newest first. FOLDER: that of the checkpoints, or a run's.\n"
              "Reads no tensors.\n",
          .groups = {{"", {{"--json", flags::on(json), "The same as one JSON object"}}}},
          .prefix = "checkpoint list: ",
          .operands = flags::Operands::some};
}

flags::Table inspect_checkpoint_table(bool& json) {
  return {.usage = "lockstep checkpoint inspect PATH [options]",
          .about =
              "Says what a checkpoint holds: its step, what its state says, files, tensors with their bytes. PATH: a\n"
              "checkpoint, or a folder, whose newest it is then.\n",
          .groups = {{"", {{"--json", flags::on(json), "The same as one JSON object"}}}},
          .prefix = "checkpoint inspect: ",
          .operands = flags::Operands::some};
}

flags::Table verify_table() {
  return {.usage = "lockstep checkpoint verify PATH",
          .about =
              "Reads every byte of a checkpoint, or of all checkpoints of a folder, and compares it with the hashes\n"
              "of its MANIFEST. Names file, tensor and offset of each damage. Exit code: 0 all is whole, 1 damage was\n"
              "found, 2 no checkpoint.\n",
          .groups = {},
          .prefix = "checkpoint verify: ",
          .operands = flags::Operands::some};
}

flags::Command checkpoint_commands(CheckpointCommandOptions& options) {
  return {.name = "checkpoint",
          .summary = "list, inspect and verify checkpoints",
          .table = {.usage = "lockstep checkpoint COMMAND [arguments]",
                    .after = "lockstep checkpoint COMMAND --help tells more.\n"},
          .commands = {
              {.name = "list", .summary = "say which checkpoints a folder has", .table = list_table(options.list_json)},
              {.name = "inspect",
               .summary = "say what a checkpoint holds",
               .table = inspect_checkpoint_table(options.inspect_json)},
              {.name = "verify", .summary = "find damage in checkpoints", .table = verify_table()}}};
}

}  // namespace lockstep::app
