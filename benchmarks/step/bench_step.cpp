// lockstep-bench-step (lockstep bench step): seconds of whole training steps. Alone it forks two processes for each
// workload and prints a table; with --turns it is a worker of a job that trains when it is told to, for
// benchmarks/step/step.py, which compares it with Python.

#include <ATen/Parallel.h>
#include <malloc.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "benchmarks/step/profile.h"
#include "benchmarks/step/step_trainer.h"
#include "benchmarks/support/output.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/ranks.h"
#include "benchmarks/support/statistics.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/world.h"
#include "lockstep/flags/values.h"
#include "lockstep/memory/caching_allocator.h"
#include "lockstep/nn/fuse.h"
#include "lockstep/optim/store_choice.h"

namespace {

using namespace lockstep;
using namespace lockstep::bench;
using nlohmann::json;
using nlohmann::ordered_json;

struct Settings {
  std::vector<std::string> workloads;
  Way way;
  int ranks = 2;
  int threads = 1;                               // of a rank
  double seconds = 2;                            // of a workload's measurement, about
  int settle = optim::StoreChoice::kFirstTrial;  // steps before it, in which the engine finds the faster stores
  std::string turns;
  bool small_pages = false;
  comm::BindTo bind_to = comm::BindTo::none;
  bool profile = false;
  bool json = false;  // of the profile
};

// Commands come in by the named pipe to.RANK, a line of JSON each; the answer to `steps` goes out by from.RANK.
void serve(const Settings& settings) {
  const World world = init({.threads = settings.threads, .bind_to = settings.bind_to, .idle_cores_hint = false});
  StepTrainer trainer(find_workload(settings.workloads.front()), world.group(), settings.way);
  std::ifstream commands(settings.turns + "/to." + std::to_string(world.rank()));
  std::ofstream answers(settings.turns + "/from." + std::to_string(world.rank()));
  if (!commands || !answers)
    throw UsageError("bench step: --turns '" + settings.turns + "': no pipes for rank " + std::to_string(world.rank()));
  for (std::string line; std::getline(commands, line);) {
    const json command = json::parse(line);
    if (command.contains("end")) return;
    const json answer = {
        {"times", trainer.turn(command.at("steps"))}, {"weights", trainer.weights()}, {"pages", trainer.page_size()}};
    answers << answer.dump() << std::endl;
  }
}

// How many steps to measure, at the pace of the last of those in which the trainer settles.
int steps_of(const Settings& settings, StepTrainer& trainer, comm::Group& group) {
  const std::vector<double> times = trainer.turn(settings.settle);
  const int last = std::min(settings.settle, 5);
  at::Tensor pace = torch::tensor((times.back() - times.end()[-1 - last]) / last, at::kDouble);
  group.broadcast(pace, 0);
  return std::max(3, int(settings.seconds / pace.item<double>()));
}

// Seconds of each step on rank 0, where a step ends when it has ended on all.
std::vector<double> measure(const Workload& workload, const Settings& settings, const Groups& groups) {
  at::set_num_threads(settings.threads);
  StepTrainer trainer(workload, groups.front(), settings.way);
  const std::vector<double> times = trainer.turn(steps_of(settings, trainer, *groups.front()));
  std::vector<double> steps;
  for (std::size_t i = 1; i < times.size(); ++i) steps.push_back(times[i] - times[i - 1]);
  return steps;
}

void run_alone(const Settings& settings) {
  std::printf("%-16s %10s %10s %10s %14s\n", "workload", "median ms", "p10 ms", "p90 ms", "samples/s");
  for (const std::string& name : settings.workloads) {
    const Workload& workload = find_workload(name);
    const json steps = json::parse(run_ranks(
        settings.ranks, 1, [&](const Groups& groups) { return json(measure(workload, settings, groups)).dump(); }));
    const Spread spread = spread_of(steps.get<std::vector<double>>());
    std::printf("%-16s %10.3f %10.3f %10.3f %14.0f\n", name.c_str(), 1e3 * spread.median, 1e3 * spread.p10,
                1e3 * spread.p90, double(workload.batch * settings.ranks) / spread.median);
    std::fflush(stdout);
  }
}

ordered_json profile(const Workload& workload, const Settings& settings, const Groups& groups) {
  at::set_num_threads(settings.threads);
  StepTrainer trainer(workload, groups.front(), settings.way);
  const int steps = steps_of(settings, trainer, *groups.front());
  const StepProfile split = profile_steps(trainer, *groups.front(), steps);
  const BareOperators bare =
      time_bare_operators(trainer, *groups.front(), settings.way.amp == Amp::bf16, std::min(steps, 50));
  ordered_json parts, operators;
  for (const auto& [name, seconds] : split.parts) parts[name] = seconds;
  for (const auto& [name, seconds] : split.operators) operators[name] = seconds;
  return {{"workload", workload.name},
          {"step_seconds", split.step},
          {"parts", parts},
          {"operators", operators},
          {"limit", {{"operators", bare.seconds}, {"gflop", bare.gflop}, {"peak_gflops", bare.peak_gflops}}}};
}

std::string to_text(const ordered_json& found) {
  const double whole = found.at("step_seconds");
  std::string page = text("%s: a step %.3f ms\n", found.at("workload").get<std::string>().c_str(), 1e3 * whole);
  for (const auto& [name, seconds] : found.at("parts").items())
    page += text("  %-24s %9.3f ms %5.1f %%\n", name.c_str(), 1e3 * seconds.get<double>(),
                 100 * seconds.get<double>() / whole);
  page += "  of it, by operator:\n";
  for (const auto& [name, seconds] : found.at("operators").items())
    page += text("    %-60s %9.3f ms\n", name.c_str(), 1e3 * seconds.get<double>());
  double bare = 0;
  for (const auto& [name, seconds] : found.at("limit").at("operators").items()) bare += seconds.get<double>();
  return page +
         text(
             "  its convolutions and matrix products called alone: %.3f ms; %.2f GFLOP, at the %.0f GFLOP/s of a "
             "large product %.3f ms\n",
             1e3 * bare, found.at("limit").at("gflop").get<double>(), found.at("limit").at("peak_gflops").get<double>(),
             1e3 * found.at("limit").at("gflop").get<double>() / found.at("limit").at("peak_gflops").get<double>());
}

void run_profile(const Settings& settings) {
  for (const std::string& name : settings.workloads) {
    const Workload& workload = find_workload(name);
    const auto found = ordered_json::parse(
        run_ranks(settings.ranks, 1, [&](const Groups& groups) { return profile(workload, settings, groups).dump(); }));
    std::printf("%s\n", (settings.json ? found.dump() : to_text(found)).c_str());
    std::fflush(stdout);
  }
}

// Asked for and without effect would be a silent loss.
void check(const flags::Parsed& parsed, const Settings& settings) {
  const auto given = [&](const char* flag) { return parsed.given(flag); };
  const auto refuse = [](const std::string& why) { throw UsageError("bench step: " + why); };
  if (given("--json") && !given("--profile")) refuse("--json without --profile: it is the profile's form");
  if (given("--bind-to") && !given("--turns")) refuse("--bind-to without --turns: it is for the workers of a job");
  if (given("--compression") && !given("--turns"))
    refuse("--compression without --turns: two processes of one node send each other nothing");
  for (const char* flag : {"--profile", "--ranks", "--seconds", "--settle"})
    if (given(flag) && given("--turns")) refuse(std::string(flag) + " with --turns: a worker does what it is told");
  for (const std::string& name : settings.workloads) {
    const bool pictures = find_workload(name).sample.size() == 3;
    if (settings.way.channels_last && !pictures)
      refuse("--channels-last with --workload " + name + ", whose samples are no pictures");
    if (settings.way.fuse && nn::fuse(*find_workload(name).model()).empty())
      refuse("--fuse with --workload " + name + ", which has no layers to fuse");
  }
  if (settings.way.fuse && settings.way.sync_bn)
    refuse("--fuse with --sync-bn: statistics over both processes are made by BatchNorm itself");
  if (given("--turns") && settings.workloads.size() != 1) refuse("--turns takes one --workload");
}

flags::Table table_of(Settings& settings) {
  using BindTo = comm::BindTo;
  return {
      .usage = "lockstep bench step [options]",
      .about = "Seconds of whole training steps, on two processes of one thread by default.\n",
      .groups = {
          {"",
           {{"--workload", flags::several_of(settings.workloads, workload_names()), "", "all whose steps are short"},
            {"--ranks", flags::integer(settings.ranks, 1, 64), "processes"},
            {"--threads", flags::integer(settings.threads, 1, 64), "computing threads of each"},
            {"--amp", flags::choice<Amp>(settings.way.amp, {{"none", Amp::none}, {"bf16", Amp::bf16}})},
            {"--no-huge-pages", flags::on(settings.small_pages), "neither for shared nor for private memory"},
            {"--bind-to", flags::choice<BindTo>(settings.bind_to, {{"none", BindTo::none}, {"core", BindTo::core}}),
             "a core of its own; for workers (--turns)"},
            {"--channels-last", flags::on(settings.way.channels_last), "pictures in the order height, width, channels"},
            {"--sync-bn", flags::on(settings.way.sync_bn), "BatchNorm over the batches of both processes"},
            {"--fuse", flags::on(settings.way.fuse),
             "BatchNorm, ReLU and pooling as one layer, gradients of linear layers in their slots"},
            {"--compression",
             flags::choice<Compression>(
                 settings.way.compression,
                 {{"none", Compression::none}, {"fp16", Compression::fp16}, {"bf16", Compression::bf16}}),
             "what gradients travel in between nodes; for workers (--turns)"},
            {"--profile", flags::on(settings.profile), "say where the time of a step goes"},
            {"--json", flags::on(settings.json), "the profile for programs, a line for each workload"},
            {"--seconds", flags::real(settings.seconds, flags::kPositive), "of a workload, about"},
            {"--settle", flags::integer(settings.settle, 1, 1'000'000),
             "steps before those that count, in which the engine finds the faster stores"},
            {"--turns", flags::text(settings.turns, "DIR"),
             "folder of the pipes that tell a worker when to train; one workload, started by lockstep run"}}}}};
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  settings.workloads = usual_workload_names();
  return run_program(table_of(settings), argc, argv, [&](const flags::Parsed& parsed) {
    at::set_num_threads(1);  // threads that the check begins would be missing in the ranks, which are forked
    check(parsed, settings);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);  // as lockstep-trainer does
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    if (settings.small_pages) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    memory::use_caching_allocator();
    if (!settings.turns.empty())
      serve(settings);
    else if (settings.profile)
      run_profile(settings);
    else
      run_alone(settings);
  });
}
