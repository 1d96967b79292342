// lockstep completion, lockstep man: texts made of the tables of all commands.

#include <array>
#include <cstdio>
#include <utility>

#include "all_commands.h"
#include "commands.h"
#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/flags/completion.h"
#include "lockstep/flags/man_page.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/print.h"
#include "lockstep/flags/values.h"

namespace lockstep::app {
namespace {

constexpr std::array kShells = {std::pair{"bash", flags::Shell::bash}, std::pair{"zsh", flags::Shell::zsh},
                                std::pair{"fish", flags::Shell::fish}};

flags::Shell shell_named(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, shell] : kShells) {
    if (name == known) return shell;
    names.emplace_back(known);
  }
  throw UsageError("completion: " + base::unknown_name("shell", name, names));
}

void write_file(const std::string& path, const std::string& text) {
  base::AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

int print(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? kExitDone : kExitFailure;
}

std::string page_of(const flags::Command& root, const flags::Place& place) {
  return man_page(root, place, "lockstep " LOCKSTEP_VERSION);
}

int write_pages(const flags::Command& root, const std::string& folder) {
  for (const flags::Place& place : places_of(root))
    if (!place.command->table.usage.empty()) write_file(folder + "/" + page_name(place) + ".1", page_of(root, place));
  return kExitDone;
}

}  // namespace

flags::Table completion_table(std::string& output) {
  return {.usage = "lockstep completion bash|zsh|fish [options]",
          .about =
              "Prints a script by which the shell completes commands, flags and their values.\n"
              "For bash, in ~/.bashrc:\n"
              "  source <(lockstep completion bash)\n",
          .groups = {{"", {{"--output", flags::text(output, "FILE"), "Write it there", "standard output"}}}},
          .prefix = "completion: ",
          .operands = flags::Operands::some};
}

flags::Table man_table(std::string& folder) {
  return {.usage = "lockstep man [COMMAND] [options]",
          .about =
              "Prints a manual page. To read it:\n"
              "  lockstep man train | man -l -\n",
          .groups = {{"", {{"--output-dir", flags::text(folder, "DIR"), "Write the pages of all commands into DIR"}}}},
          .prefix = "man: ",
          .operands = flags::Operands::some};
}

int completion_command(const std::vector<std::string>& arguments) {
  std::string output;
  const flags::Parsed parsed = flags::parse(completion_table(output), arguments);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  if (parsed.operands.size() != 1) {
    throw UsageError("completion: one shell expected (bash, zsh, fish), " + std::to_string(parsed.operands.size()) +
                     " given");
  }
  AllOptions options;
  const std::string script = completion(all_commands(options), shell_named(parsed.operands.front()));
  if (!parsed.given("--output")) return print(script);
  write_file(output, script);
  return kExitDone;
}

int man_command(const std::vector<std::string>& arguments) {
  std::string folder;
  const flags::Parsed parsed = flags::parse(man_table(folder), arguments);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  AllOptions options;
  const flags::Command root = all_commands(options);
  if (parsed.given("--output-dir")) {
    if (!parsed.operands.empty())
      throw UsageError("man: --output-dir writes all pages, found '" + parsed.operands.front() + "' besides");
    return write_pages(root, folder);
  }
  const flags::Place place = find_place(root, parsed.operands);
  if (place.command->table.usage.empty())
    throw UsageError("man: '" + place.path + "' has no page: " + place.path + " --help tells its flags");
  return print(page_of(root, place));
}

}  // namespace lockstep::app
