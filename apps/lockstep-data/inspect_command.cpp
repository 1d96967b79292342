#include <cstdio>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/data/inspect/inspect.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/values.h"

namespace lockstep::app {
namespace {

constexpr int kMostThreads = 1024;

flags::Table table_of(data::InspectOptions& options, bool& json) {
  return {
      .usage = "lockstep data inspect PATH [options]",
      .about =
          "Says what a folder or file holds: classes with their numbers of pictures, sizes, kinds, bytes. Decodes\n"
          "every picture, and names damaged files, empty classes, and parts whose classes differ. Knows class\n"
          "folders (also in train, val, test), the binary files of CIFAR-10 and CIFAR-100, MNIST's files, and\n"
          "single files. Exit code: 0 all is whole, 1 faults were found, 2 no data set.\n",
      .groups = {{"",
                  {{"--quick", flags::on(options.quick), "Read only the headers of picture files"},
                   {"--threads", flags::integer(options.threads, 1, kMostThreads), "Threads that decode", "all cores"},
                   {"--json", flags::on(json), "The same as one JSON object"}}}},
      .prefix = "data inspect: ",
      .operands = flags::Operands::some};
}

}  // namespace

int inspect_command(const std::vector<std::string>& words) {
  data::InspectOptions options;
  bool json = false;
  const flags::Parsed parsed = flags::parse(table_of(options, json), words);
  if (!parsed.text.empty()) return std::fputs(parsed.text.c_str(), stdout) < 0 ? kExitFailure : kExitDone;
  if (parsed.operands.size() != 1) {
    throw UsageError("data inspect: one folder or file expected, " + std::to_string(parsed.operands.size()) + " given");
  }
  const data::Report report = data::inspect(parsed.operands[0], options);
  const std::string text = json ? report_as_json(report) : report_as_text(report);
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written && report.faults.empty() ? kExitDone : kExitFailure;
}

}  // namespace lockstep::app
