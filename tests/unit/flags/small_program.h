#pragma once

// A program with commands, for tests of what is made of the tables.

#include <string>

#include "lockstep/flags/command.h"
#include "lockstep/flags/values.h"

namespace lockstep::flags {

struct SmallOptions {
  std::string opt = "sgd";
  int count = 1;
  std::string folder;
  bool fast = false;
};

inline Command small_program(SmallOptions& o) {
  const Table train{.usage = "toy train [options]",
                    .about = "Trains.\nThat is all.\n",
                    .groups = {{"Job",
                                {{"--opt", one_of(o.opt, {"sgd", "adam"}), "The update's rule"},
                                 {"-n, --count", integer(o.count, 0, 9), "How many"},
                                 {"--output-dir", text(o.folder, "DIR"), "Where to"},
                                 {"--fast", on(o.fast)}}}}};
  const Table run{.usage = "toy run program [arguments]",
                  .groups = {{"", {{"--folder", text(o.folder, "FOLDER"), "Where"}}}},
                  .after = "Exit code: the program's.\n",
                  .operands = Operands::program,
                  .repeats = true};
  const Table fetch{.usage = "toy data fetch SET", .operands = Operands::some};
  Command data{.name = "data", .summary = "sets", .table = {.usage = "toy data COMMAND"}};
  data.commands = {{.name = "fetch", .summary = "download one", .table = fetch, .words = {"mnist", "cifar"}}};
  Command root{.name = "toy",
               .summary = "shows what there is",
               .table = {.usage = "toy COMMAND", .after = "That is the end.\n", .version = "toy 1\n"}};
  root.commands = {{.name = "train", .summary = "train: a model", .table = train},
                   {.name = "run", .summary = "run a program", .table = run},
                   data,
                   {.name = "more", .summary = "another program's"}};
  return root;
}

}  // namespace lockstep::flags
