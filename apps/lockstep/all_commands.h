#pragma once

// All commands of the `lockstep` program: what its help lists, shells complete and manual pages tell.

#include <string>

#include "apps/lockstep-checkpoint/checkpoint_commands.h"
#include "apps/lockstep-data/data_commands.h"
#include "commands.h"
#include "lockstep/flags/command.h"
#include "lockstep/launch/flags/options.h"
#include "lockstep/train/options_predict.h"

namespace lockstep::app {

/// What the tables of all commands read and write.
struct AllOptions {
  launch::Options run_options;
  launch::Options launch_options;
  train::Options train_options;
  train::PredictOptions predict_options;
  DataOptions data_options;
  CheckpointCommandOptions checkpoint_options;
  bool env_json = false;
  DoctorOptions doctor_options;
  std::string completion_output;
  std::string man_folder;
  TraceOptions trace_options;
  std::string report_output = "report.html";
};

/// The root. Its tables belong to `options`, which outlives them.
flags::Command all_commands(AllOptions& options);

}  // namespace lockstep::app
