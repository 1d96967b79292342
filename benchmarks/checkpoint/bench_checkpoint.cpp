// lockstep-bench-checkpoint: a worker of a job that trains, saves and loads when it is told to, for
// benchmarks/checkpoint/checkpoint.py, which compares it with Python.

#include <ATen/Parallel.h>
#include <malloc.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "benchmarks/checkpoint/trainee.h"
#include "benchmarks/support/program.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/world.h"
#include "lockstep/flags/values.h"
#include "lockstep/memory/caching_allocator.h"
#include "lockstep/models/registry.h"

namespace {

using namespace lockstep;
using namespace lockstep::bench;
using nlohmann::json;

struct Settings {
  std::string model = "resnet50";
  Saving saving = Saving::background;
  std::string folder;
  std::string turns;
};

json answer_to(const json& command, Trainee& trainee) {
  const std::string what = command.at("do");
  if (what == "steps") return {{"times", trainee.steps(command.at("steps"))}};
  if (what == "load weights") return {{"seconds", trainee.load_weights()}};
  if (what == "load all") return {{"seconds", trainee.load_all()}};
  if (what != "save") throw UsageError("bench checkpoint: '" + what + "' is not steps, save, load weights or load all");
  const Trainee::Save save = trainee.save(command.at("steps"));
  return {{"times", save.times},
          {"whole", save.whole},
          {"written", save.written},
          {"bytes", save.bytes},
          {"additional_bytes", save.additional_bytes}};
}

// Commands come in by the named pipe to.RANK, a line of JSON each; answers go out by from.RANK.
void serve(const Settings& settings) {
  const World world = init({.idle_cores_hint = false});
  at::set_num_threads(1);
  Trainee trainee(settings.model, world.group(), settings.folder, settings.saving);
  std::ifstream commands(settings.turns + "/to." + std::to_string(world.rank()));
  std::ofstream answers(settings.turns + "/from." + std::to_string(world.rank()));
  if (!commands || !answers)
    throw UsageError("bench checkpoint: --turns '" + settings.turns + "': no pipes for rank " +
                     std::to_string(world.rank()));
  for (std::string line; std::getline(commands, line);) {
    const json command = json::parse(line);
    if (command.contains("end")) return;
    answers << answer_to(command, trainee).dump() << std::endl;
  }
}

flags::Table table_of(Settings& settings) {
  return {.usage = "lockstep-bench-checkpoint --turns DIR --folder DIR [options]",
          .about = "A worker that trains, saves and loads when it is told to, started by lockstep run.\n",
          .groups = {{"",
                      {{"--model", flags::one_of(settings.model, models::model_names())},
                       {"--saving", flags::choice<Saving>(settings.saving, {{"background", Saving::background},
                                                                            {"in-loop", Saving::in_loop}})},
                       {"--folder", flags::text(settings.folder, "DIR"), "where checkpoints go"},
                       {"--turns", flags::text(settings.turns, "DIR"), "folder of the pipes that tell what to do"}}}}};
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  return run_program(table_of(settings), argc, argv, [&](const flags::Parsed&) {
    if (settings.turns.empty()) throw UsageError("bench checkpoint: --turns is needed: the folder of the pipes");
    if (settings.folder.empty()) throw UsageError("bench checkpoint: --folder is needed: where checkpoints go");
    mallopt(M_MMAP_THRESHOLD, 32 << 20);  // as lockstep-trainer does
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    memory::use_caching_allocator();
    serve(settings);
  });
}
