#include "apps/lockstep-data/data_commands.h"

#include "lockstep/base/text.h"
#include "lockstep/data/sets/known_sets.h"
#include "lockstep/flags/values.h"

namespace lockstep::app {
namespace {

constexpr int kMostSeconds = 86'400;
constexpr int kMostThreads = 1024;

}  // namespace

flags::Table fetch_table(FetchOptions& options) {
  return {.usage = "lockstep data fetch SET [options]",
          .about =
              "Downloads a data set from its well-known addresses, checks sizes and SHA-256, and unpacks it to\n"
              "what --data-path of lockstep train reads. SET: " +
              base::join(data::fetched_set_names()) +
              ".\n"
              "What was interrupted is gone on with; what is there already, and whole, is left alone.\n",
          .groups = {{"",
                      {{"--to", flags::text(options.folder, "DIR"), "The folder to put it into", "data/SET"},
                       {"--mirror", flags::text(options.mirror, "URL"),
                        "The folder to download from; the checksums stay the same", "the well-known addresses"},
                       {"--timeout", flags::integer(options.stall, 1, kMostSeconds),
                        "Give up on an address that sends nothing for N seconds"},
                       {"--quiet", flags::on(options.quiet), "Say nothing unless something fails"}}}},
          .prefix = "data fetch: ",
          .operands = flags::Operands::some};
}

flags::Table inspect_table(InspectOptions& options) {
  return {.usage = "lockstep data inspect PATH [options]",
          .about =
              "Says what a folder or file holds: classes with their numbers of pictures, sizes, kinds, bytes. Decodes\n"
              "every picture, and names damaged files, empty classes, and parts whose classes differ. Knows class\n"
              "folders (also in train, val, test), the binary files of CIFAR-10 and CIFAR-100, MNIST's files, and\n"
              "single files. Exit code: 0 all is whole, 1 faults were found, 2 no data set.\n",
          .groups = {{"",
                      {{"--quick", flags::on(options.look.quick), "Read only the headers of picture files"},
                       {"--threads", flags::integer(options.look.threads, 1, kMostThreads), "Threads that decode",
                        "all cores"},
                       {"--json", flags::on(options.json), "The same as one JSON object"}}}},
          .prefix = "data inspect: ",
          .operands = flags::Operands::some};
}

flags::Command data_commands(DataOptions& options) {
  return {
      .name = "data",
      .summary = "download a data set, or say what a folder holds",
      .table = {.usage = "lockstep data COMMAND [arguments]", .after = "lockstep data COMMAND --help tells more.\n"},
      .commands = {{.name = "fetch",
                    .summary = "download a well-known data set",
                    .table = fetch_table(options.fetch),
                    .words = data::fetched_set_names()},
                   {.name = "inspect",
                    .summary = "say what a folder or file holds, and find damaged files",
                    .table = inspect_table(options.inspect)}}};
}

}  // namespace lockstep::app
