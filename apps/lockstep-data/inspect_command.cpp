#include <cstdio>

#include "apps/lockstep-data/data_commands.h"
#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/data/inspect/inspect.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/print.h"

namespace lockstep::app {

int inspect_command(const std::vector<std::string>& words) {
  InspectOptions options;
  const flags::Parsed parsed = flags::parse(inspect_table(options), words);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  if (parsed.operands.size() != 1) {
    throw UsageError("data inspect: one folder or file expected, " + std::to_string(parsed.operands.size()) + " given");
  }
  const data::Report report = data::inspect(parsed.operands[0], options.look);
  const std::string text = options.json ? report_as_json(report) : report_as_text(report);
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written && report.faults.empty() ? kExitDone : kExitFailure;
}

}  // namespace lockstep::app
