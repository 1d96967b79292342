// lockstep trace: what the ranks of a job that hung or failed were doing.

#include <cstdio>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/print.h"
#include "lockstep/flags/values.h"
#include "lockstep/trace/explain.h"
#include "lockstep/trace/trace_file.h"

namespace lockstep::app {

flags::Table trace_table(TraceOptions& o) {
  return {
      .usage = "lockstep trace FILE|FOLDER... [options]",
      .about =
          "Puts together what the ranks of a job have left when their group was aborted: the last collectives of\n"
          "each, in files trace_attempt_A_rank_R.json. Says in which collective they stopped, who had arrived, who\n"
          "had not and what they did last, where ranks called different things, and who is to blame. Ranks write\n"
          "them into LOCKSTEP_TRACE_DIR, or beside their logs (lockstep run --log-dir).\n",
      .groups = {{"Options",
                  {{"--attempt", flags::integer(o.attempt, 0, 1'000'000'000),
                    "Of folders with traces of several attempts, which one", "the only one there is"},
                   {"--json", flags::on(o.json), "The same as one JSON object"}}}},
      .prefix = "trace: ",
      .operands = flags::Operands::some};
}

int trace_command(const std::vector<std::string>& arguments) {
  TraceOptions options;
  const flags::Parsed parsed = flags::parse(trace_table(options), arguments);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  if (parsed.operands.empty())
    throw UsageError("trace: no trace given: files of ranks, or a folder with some, expected");
  const trace::Explanation found = trace::explain(trace::read_traces(parsed.operands, options.attempt));
  const std::string text = options.json ? trace::explanation_json(found) : trace::explanation_text(found);
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written ? kExitDone : kExitFailure;
}

}  // namespace lockstep::app
