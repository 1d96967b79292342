#include <cstdio>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/print.h"
#include "lockstep/flags/values.h"
#include "lockstep/launch/machine/machine_report.h"
#include "lockstep/launch/plan.h"
#include "own_build.h"

namespace lockstep::app {
flags::Table env_table(bool& json) {
  return {.usage = "lockstep env [options]",
          .about =
              "Prints what a bug report needs: versions, processor, memory, limits, GPUs, launchers, the\n"
              "environment variables that change a job (secrets hidden), and libtorch. Starts nothing but\n"
              "lockstep-trainer, for the facts about libtorch.\n",
          .groups = {{"", {{"--json", flags::on(json), "The same as one JSON object"}}}},
          .prefix = "env: ",
          .operands = flags::Operands::some};
}

int env_command(const std::vector<std::string>& arguments) {
  bool json = false;
  const flags::Parsed parsed = flags::parse(env_table(json), arguments);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  if (!parsed.operands.empty()) throw UsageError("env: takes no arguments: '" + parsed.operands.front() + "'");
  std::vector<launch::Section> sections = launch::machine_report(own_build(), launch::this_environment());
  sections.push_back(libtorch_of_trainer());
  const std::string text = json ? launch::facts_as_json(sections) : launch::facts_as_text(sections);
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written ? kExitDone : kExitFailure;
}

}  // namespace lockstep::app
