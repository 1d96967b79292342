#include "apps/lockstep-checkpoint/weights_commands.h"

#include <cstdio>

#include "apps/lockstep-checkpoint/checkpoint_commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/files/average.h"
#include "lockstep/checkpoint/files/compare.h"
#include "lockstep/checkpoint/files/weights_file.h"
#include "lockstep/checkpoint/files/write_weights.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/print.h"

namespace lockstep::app {
namespace {

using Words = std::vector<std::string>;

// A command's words: either it has said its help, with this result, or these are its operands.
struct Given {
  bool helped = false;
  int code = kExitDone;
  Words operands;
};

Given given(flags::Table table, const Words& words, std::size_t least, std::size_t most) {
  const flags::Parsed parsed = flags::parse(table, words);
  if (!parsed.text.empty())
    return {.helped = true, .code = flags::print_help(parsed.text) ? kExitDone : kExitFailure, .operands = {}};
  if (parsed.operands.size() < least || parsed.operands.size() > most)
    throw UsageError(table.prefix + std::to_string(parsed.operands.size()) + " paths given; usage: " + table.usage);
  return {.operands = parsed.operands};
}

int say(const std::string& text) { return std::fputs(text.c_str(), stdout) < 0 ? kExitFailure : kExitDone; }

std::string quoted(const std::string& path) { return "'" + base::shown(path) + "'"; }

int say_written(const std::string& path, std::size_t tensors) {
  return say(quoted(path) + " has " + std::to_string(tensors) + " tensors\n");
}

}  // namespace

int export_command(const Words& words) {
  std::string names;
  const Given paths = given(export_table(names), words, 2, 2);
  if (paths.helped) return paths.code;
  const std::string& out = paths.operands[1];
  if (!checkpoint::is_pt_name(out))
    throw UsageError("checkpoint export: " + quoted(out) + " ends in .safetensors; .pt or .pth expected");
  const checkpoint::WeightsFile file(checkpoint::weights_path(paths.operands[0]), checkpoint::name_map(names));
  checkpoint::write_weights(out, checkpoint::sources_of(file));
  return say_written(out, file.tensors().size());
}

int import_command(const Words& words) {
  std::string names;
  const Given paths = given(import_table(names), words, 2, 2);
  if (paths.helped) return paths.code;
  const std::string& out = paths.operands[1];
  if (checkpoint::is_pt_name(out))
    throw UsageError("checkpoint import: " + quoted(out) + " is a name of torch.save's; .safetensors expected");
  const checkpoint::WeightsFile file(paths.operands[0], checkpoint::name_map(names));
  checkpoint::write_weights(out, checkpoint::sources_of(file));
  for (const auto& [name, what] : file.others()) say("left out: " + base::shown(name + ", " + what) + "\n");
  return say_written(out, file.tensors().size());
}

int diff_command(const Words& words) {
  const Given paths = given(diff_table(), words, 2, 2);
  if (paths.helped) return paths.code;
  const checkpoint::WeightsFile a(checkpoint::weights_path(paths.operands[0]));
  const checkpoint::WeightsFile b(checkpoint::weights_path(paths.operands[1]));
  const checkpoint::Comparison found = checkpoint::compare(a, b);
  for (const std::string& line : found.differences) say(line + "\n");
  if (!found.differences.empty()) return kExitFailure;
  return say(std::to_string(found.compared) + " tensors, equal to the bit\n");
}

int average_command(const Words& words) {
  const Given paths = given(average_table(), words, 2, words.size());
  if (paths.helped) return paths.code;
  std::vector<checkpoint::WeightsFile> files;
  for (std::size_t i = 1; i < paths.operands.size(); ++i)
    files.emplace_back(checkpoint::weights_path(paths.operands[i]));
  checkpoint::write_weights(paths.operands[0], checkpoint::average_of(files));
  return say_written(paths.operands[0], files.front().tensors().size());
}

}  // namespace lockstep::app
