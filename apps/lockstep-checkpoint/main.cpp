// lockstep-checkpoint: checkpoints on disk, as `lockstep checkpoint`. No libtorch.

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "apps/lockstep-checkpoint/checkpoint_commands.h"
#include "apps/lockstep-checkpoint/save_segment.h"
#include "apps/lockstep-checkpoint/weights_commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/standard_streams.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/find.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/checkpoint/store/summary.h"
#include "lockstep/checkpoint/store/verify.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/print.h"

namespace lockstep::app {
namespace {

using Words = std::vector<std::string>;

const Words kCommands = {"list", "inspect", "verify", "export", "import", "diff", "average", "help"};

int print(const std::string& text) { return std::fputs(text.c_str(), stdout) < 0 ? kExitFailure : kExitDone; }

const std::string& only_operand(const flags::Parsed& parsed, const char* command) {
  if (parsed.operands.size() != 1)
    throw UsageError("checkpoint " + std::string(command) + ": one folder expected, " +
                     std::to_string(parsed.operands.size()) + " given");
  return parsed.operands[0];
}

int list_command(const Words& words) {
  bool json = false;
  const flags::Parsed parsed = flags::parse(list_table(json), words);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  const auto all = checkpoint::list(checkpoint::checkpoints_below(only_operand(parsed, "list")));
  return print(json ? checkpoint::list_as_json(all) : checkpoint::list_as_text(all));
}

// A checkpoint's own path, or all of a folder.
Words paths_of(const std::string& path) {
  if (std::filesystem::exists(path + "/" + checkpoint::kManifestName)) return {path};
  const std::string folder = checkpoint::checkpoints_below(path);
  Words paths;
  for (const std::uint64_t step :
       checkpoint::newest_first(checkpoint::steps_in(folder), checkpoint::linked_step(folder, checkpoint::kLastName)))
    paths.push_back(folder + "/" + checkpoint::step_name(step));
  if (paths.empty() && !checkpoint::is_none(path)) return {path};  // one that has lost its manifest
  if (paths.empty()) throw UsageError("there is no checkpoint in '" + path + "'");
  return paths;
}

int inspect_command(const Words& words) {
  bool json = false;
  const flags::Parsed parsed = flags::parse(inspect_checkpoint_table(json), words);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  const std::string path = paths_of(only_operand(parsed, "inspect")).front();
  const checkpoint::Manifest manifest = checkpoint::read_manifest(path);
  const checkpoint::SavedState state = checkpoint::read_state(path);
  return print(json ? contents_as_json(manifest, state) : contents_as_text(manifest, state));
}

int verify_command(const Words& words) {
  const flags::Parsed parsed = flags::parse(verify_table(), words);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  int code = kExitDone;
  for (const std::string& path : paths_of(only_operand(parsed, "verify"))) {
    const std::vector<checkpoint::Damage> found = checkpoint::verify(path);
    for (const checkpoint::Damage& damage : found) print(base::shown(damage.to_string()) + "\n");
    if (found.empty()) print("'" + base::shown(path) + "' is whole\n");
    if (!found.empty()) code = kExitFailure;
  }
  return code;
}

int dispatch(const Words& words) {
  if (words.empty()) throw UsageError("checkpoint: no command given: lockstep checkpoint " + base::join(kCommands));
  const std::string& name = words.front();
  const Words rest(words.begin() + 1, words.end());
  if (name == "--help" || name == "-h" || name == "help") {
    CheckpointCommandOptions options;
    return flags::print_help(help(checkpoint_commands(options))) ? kExitDone : kExitFailure;
  }
  if (name == "list") return list_command(rest);
  if (name == "inspect") return inspect_command(rest);
  if (name == "verify") return verify_command(rest);
  if (name == "export") return export_command(rest);
  if (name == "import") return import_command(rest);
  if (name == "diff") return diff_command(rest);
  if (name == "average") return average_command(rest);
  if (name == "save-segment" && rest.size() == 2) return save_segment(rest[0], rest[1]);
  throw UsageError("checkpoint: " + base::unknown_name("command", name, kCommands));
}

}  // namespace
}  // namespace lockstep::app

int main(int argc, char** argv) {
  try {
    lockstep::base::open_standard_streams();
    std::signal(SIGPIPE, SIG_IGN);  // a write that fails says so by its result
    const int code = lockstep::app::dispatch({argv + 1, argv + argc});
    return std::fflush(stdout) == 0 ? code : lockstep::kExitFailure;
  } catch (const std::bad_alloc&) {
    lockstep::base::tell(STDERR_FILENO, "lockstep: error: more memory needed than there is\n");
    return lockstep::kExitFailure;
  } catch (const std::exception& error) {
    lockstep::base::tell(STDERR_FILENO, "lockstep: error: " + lockstep::base::shown(error.what()) + "\n");
    return lockstep::exit_code(error);
  }
}
