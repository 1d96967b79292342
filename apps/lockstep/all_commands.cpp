#include "all_commands.h"

#include "commands.h"
#include "lockstep/launch/flags/flags.h"
#include "lockstep/train/options_table.h"

namespace lockstep::app {

flags::Command all_commands(AllOptions& o) {
  flags::Command root{.name = "lockstep",
                      .summary = "data-parallel training for C++ on libtorch",
                      .table = {.usage = "lockstep COMMAND [arguments]\n       lockstep --version | --help",
                                .after = "lockstep X executes lockstep-X, from beside this program or from PATH.\n"
                                         "lockstep COMMAND --help tells more.\n",
                                .version = "lockstep " LOCKSTEP_VERSION "\n"}};
  root.commands = {
      {.name = "run",
       .summary = "start any program as the workers of a job, as torchrun does",
       .table = launch::table_of(launch::Dialect::run, o.run_options)},
      {.name = "launch",
       .summary = "the same with the flags of python -m torch.distributed.launch",
       .table = launch::table_of(launch::Dialect::launch, o.launch_options)},
      {.name = "train",
       .summary = "train a built-in model on one or more processes",
       .table = train::table_of(o.train_options)},
      {.name = "predict",
       .summary = "write down what a trained model sees in pictures",
       .table = train::predict_table_of(o.predict_options)},
      {.name = "recipes", .summary = "list the jobs that train --recipe knows", .table = recipes_table()},
      {.name = "secret",
       .summary = "make the key of a job over several nodes",
       .table = secret_table(),
       .words = {"new"}},
      {.name = "report",
       .summary = "make a page of HTML of what runs have written",
       .table = report_table(o.report_output)},
      {.name = "trace",
       .summary = "explain what the ranks of a job that hung have left",
       .table = trace_table(o.trace_options)},
      data_commands(o.data_options),
      checkpoint_commands(o.checkpoint_options),
      {.name = "env", .summary = "say what a bug report needs to know of this machine", .table = env_table(o.env_json)},
      {.name = "doctor",
       .summary = "look for what keeps jobs from running well",
       .table = doctor_table(o.doctor_options)},
      bench_commands(),
      {.name = "completion",
       .summary = "print what a shell needs to complete this program's flags",
       .table = completion_table(o.completion_output),
       .words = {"bash", "zsh", "fish"}},
      {.name = "man", .summary = "print the manual page of a command", .table = man_table(o.man_folder)}};
  root.commands.back().words = names_of(root);  // whose page is wanted
  return root;
}

}  // namespace lockstep::app
