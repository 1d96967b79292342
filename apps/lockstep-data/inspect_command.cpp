#include <cstdio>

#include "arguments.h"
#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/data/inspect/inspect.h"

namespace lockstep::app {
namespace {

constexpr const char* kHelp =
    "usage: lockstep data inspect PATH [options]\n\n"
    "Says what a folder or file holds: classes with their numbers of pictures, sizes, kinds, bytes. Decodes\n"
    "every picture, and names damaged files, empty classes, and parts whose classes differ. Knows class\n"
    "folders (also in train, val, test), the binary files of CIFAR-10 and CIFAR-100, MNIST's files, and single\n"
    "files. Exit code: 0 all is whole, 1 faults were found, 2 no data set.\n\noptions:\n"
    "  --quick      read only the headers of picture files\n"
    "  --threads N  that decode (default: all cores)\n"
    "  --json       the same as one JSON object\n"
    "  -h, --help   this text\n";

constexpr int kMostThreads = 1024;

}  // namespace

int inspect_command(const std::vector<std::string>& words) {
  const std::string command = "data inspect";
  const Arguments arguments =
      sort_arguments(command, words, {{"--quick", false}, {"--threads", true}, {"--json", false}, {"--help", false}});
  if (arguments.has("--help")) return std::fputs(kHelp, stdout) < 0 ? kExitFailure : kExitDone;
  if (arguments.positional.size() != 1) {
    throw UsageError(command + ": one folder or file expected, " + std::to_string(arguments.positional.size()) +
                     " given");
  }
  data::InspectOptions options{.quick = arguments.has("--quick")};
  if (arguments.has("--threads")) {
    options.threads = number(command, "--threads", arguments.value("--threads", ""), 1, kMostThreads);
  }
  const data::Report report = data::inspect(arguments.positional[0], options);
  const std::string text = arguments.has("--json") ? report_as_json(report) : report_as_text(report);
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written && report.faults.empty() ? kExitDone : kExitFailure;
}

}  // namespace lockstep::app
