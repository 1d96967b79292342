// lockstep report: runs as one page of HTML.

#include "commands.h"
#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/print.h"
#include "lockstep/flags/values.h"
#include "lockstep/page/page.h"

namespace lockstep::app {

flags::Table report_table(std::string& output) {
  return {.usage = "lockstep report RUN... [options]",
          .about =
              "Makes one page of HTML of what runs have written into their output directories: loss, accuracy, rate,\n"
              "speed, time, faults and restarts; of several runs the curves are in the same charts.\n",
          .groups = {{"Options", {{"-o, --output", flags::text(output, "FILE"), "The page"}}}},
          .prefix = "report: ",
          .operands = flags::Operands::some};
}

int report_command(const std::vector<std::string>& arguments) {
  std::string output = "report.html";
  const flags::Parsed parsed = flags::parse(report_table(output), arguments);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  if (parsed.operands.empty()) throw UsageError("report: no run given: the --output-dir of a run expected");
  std::vector<page::RunRecord> runs;
  for (const std::string& run : parsed.operands) runs.push_back(page::read_run(run));
  const std::string text = page::html(runs);
  base::AtomicFile file(output);
  file.write(text.data(), text.size());
  file.commit();
  return kExitDone;
}

}  // namespace lockstep::app
