#include "apps/lockstep-checkpoint/checkpoint_commands.h"

#include "lockstep/flags/values.h"

namespace lockstep::app {
namespace {

flags::Flag names_flag(std::string& names) {
  return {"--weights-map", flags::text(names, "THEIRS=OURS,..."),
          "Other names for tensors, as 'backbone.*=*'; or a file with one a line"};
}

}  // namespace

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

flags::Table export_table(std::string& names) {
  return {.usage = "lockstep checkpoint export PATH OUT.pt [options]",
          .about =
              "Writes weights as Python's torch.save writes a state_dict. PATH: a checkpoint, a folder, whose newest\n"
              "whole one it is then, or a file of weights. Equal weights give equal bytes.\n",
          .groups = {{"", {names_flag(names)}}},
          .prefix = "checkpoint export: ",
          .operands = flags::Operands::some};
}

flags::Table import_table(std::string& names) {
  return {.usage = "lockstep checkpoint import FILE.pt OUT.safetensors [options]",
          .about =
              "Writes the weights that Python's torch.save has written (.pt, .pth) as safetensors. Of a checkpoint\n"
              "they are its entry model, state_dict, model_state_dict or model_ema; a prefix 'module.' is removed.\n"
              "Nothing in the file is executed. Says what it leaves out.\n",
          .groups = {{"", {names_flag(names)}}},
          .prefix = "checkpoint import: ",
          .operands = flags::Operands::some};
}

flags::Table diff_table() {
  return {.usage = "lockstep checkpoint diff A B",
          .about =
              "Compares the weights of two files (safetensors, .pt) or checkpoints: names, dtypes, shapes and bits,\n"
              "with the largest absolute difference of each tensor that differs. Exit code: 0 equal to the bit,\n"
              "1 they differ, 2 one cannot be read.\n",
          .groups = {},
          .prefix = "checkpoint diff: ",
          .operands = flags::Operands::some};
}

flags::Table average_table() {
  return {
      .usage = "lockstep checkpoint average OUT PATH...",
      .about =
          "Writes the mean of the weights of files (safetensors, .pt) or checkpoints, summed in float64. Integers,\n"
          "as BatchNorm's count of batches, are those of the last one. OUT: .safetensors, .pt or .pth.\n",
      .groups = {},
      .prefix = "checkpoint average: ",
      .operands = flags::Operands::some};
}

flags::Command checkpoint_commands(CheckpointCommandOptions& options) {
  return {
      .name = "checkpoint",
      .summary = "list, verify, convert, compare and average checkpoints",
      .table = {.usage = "lockstep checkpoint COMMAND [arguments]",
                .after = "lockstep checkpoint COMMAND --help tells more.\n"},
      .commands = {
          {.name = "list", .summary = "say which checkpoints a folder has", .table = list_table(options.list_json)},
          {.name = "inspect",
           .summary = "say what a checkpoint holds",
           .table = inspect_checkpoint_table(options.inspect_json)},
          {.name = "verify", .summary = "find damage in checkpoints", .table = verify_table()},
          {.name = "export",
           .summary = "write weights for Python, as .pt",
           .table = export_table(options.export_names)},
          {.name = "import", .summary = "read weights of Python's .pt", .table = import_table(options.import_names)},
          {.name = "diff", .summary = "compare weights", .table = diff_table()},
          {.name = "average", .summary = "write the mean of weights", .table = average_table()}}};
}

}  // namespace lockstep::app
