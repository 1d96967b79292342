// lockstep-bench-replicas: a step of one model by one process, by one process with two replicas
// (lockstep::DataParallel) and by two processes (DistributedDataParallel), for one global batch size after the other.

#include "lockstep/train/replicas.h"

#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include <iostream>

#include "benchmarks/step/contender.h"
#include "benchmarks/step/measure.h"
#include "benchmarks/step/report.h"
#include "benchmarks/support/machine.h"
#include "benchmarks/support/output.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/ranks.h"
#include "benchmarks/support/statistics.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/flags/values.h"
#include "lockstep/models/registry.h"
#include "lockstep/optim.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace {

using namespace lockstep;
using namespace lockstep::bench;
using Model = std::shared_ptr<models::ImageModel>;
using Group = std::shared_ptr<comm::Group>;

constexpr int kRanks = 2;
constexpr int kSegments = 2;  // the clock's, the engine's
constexpr models::ImageTask kTask;
const std::vector<std::int64_t> kBatches = {8, 32, 128, 512};

enum class Way { alone, replicas, processes };
constexpr Way kWays[] = {Way::alone, Way::replicas, Way::processes};

const char* title(Way way) {
  return way == Way::alone ? "one process" : way == Way::replicas ? "two replicas" : "two processes";
}

Model model_of(Way way) {
  const train::Options options{.parallel = "dp", .replicas = kRanks, .model = "convnet"};
  const Model model = models::make_model(options.model, kTask);
  return way == Way::replicas ? train::replicated(model, options, kTask, {}) : model;
}

// One process trains on rank 0, whose peer waits.
class Step final : public Contender {
 public:
  Step(Way way, const Group& group, std::int64_t batch) : way_(way), works_(is_mine(way, *group)) {
    if (!works_) return;
    torch::manual_seed(0);
    ddp_.emplace(model_of(way), way == Way::processes ? group : std::make_shared<comm::SingleGroup>());
    optimizer_.emplace(*ddp_, optim::SGDOptions{.lr = 0.001});
    const std::int64_t mine = way == Way::processes ? batch / kRanks : batch;
    data_ = torch::randn({mine, kTask.channels, kTask.height, kTask.width});
    target_ = torch::randint(kTask.classes, {mine}, at::kLong);
  }
  std::string name() const override { return title(way_); }
  std::string kind() const override { return "ours"; }
  void prepare(const Gradients&) override {}
  void run() override {
    if (!works_) return;
    torch::nn::functional::cross_entropy((*ddp_)(data_), target_).backward();
    optimizer_->step();
  }

 private:
  static bool is_mine(Way way, const comm::Group& group) { return way == Way::processes || group.rank() == 0; }

  Way way_;
  bool works_;
  std::optional<DistributedDataParallel<Model>> ddp_;
  std::optional<optim::SGD> optimizer_;
  at::Tensor data_, target_;
};

struct Options {
  Rounds rounds;
  std::int64_t largest = 512;  // of kBatches
  std::string report;          // path without extension; empty: standard output
  std::string commit = "unknown";
  std::string command;
};

Section run_batch(const Groups& groups, const Options& options, std::int64_t batch) {
  at::set_num_threads(1);
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const Way way : kWays) contenders.push_back(std::make_unique<Step>(way, groups[1], batch));
  return {"SGD", measure(*groups[0], contenders, {}, options.rounds), "ConvNet", 0};
}

std::string lines(const Section& section, std::int64_t batch) {
  std::string found;
  const double alone = spread_of(section.timings.front().seconds).median;
  for (const Timings& timings : section.timings) {
    const Spread seconds = spread_of(timings.seconds);
    found +=
        text("| %ld | %s | %.2f | %.2f-%.2f | %.0f | %.2f |\n", long(batch), timings.name.c_str(), seconds.median * 1e3,
             seconds.p10 * 1e3, seconds.p90 * 1e3, double(batch) / seconds.median, alone / seconds.median);
  }
  return found;
}

void run(const Options& options) {
  const Machine m = read_machine();
  std::string out = "# Replicas and processes\n\n";
  out += text(
      "A step of the MNIST ConvNet with SGD in float32, by the samples of the whole step: one process, one process "
      "with two replicas (`--parallel dp --replicas 2`), two processes. One computing thread each, in turns: %d rounds "
      "after %d to warm up.\n\n",
      options.rounds.measured, options.rounds.warmup);
  out += text("- machine: %s, %d cores, %.1f GiB memory, Linux %s, load %.2f before\n", m.cpu.c_str(), m.cores,
              double(m.memory_bytes) / (1 << 30), m.kernel.c_str(), m.load);
  out += "- commit: " + options.commit + "\n- command: `" + options.command + "`\n\n";
  out +=
      "| samples a step | | median ms | p10-p90 ms | samples/s | times one process |\n|---:|---|---:|---:|---:|---:|\n";
  for (const std::int64_t batch : kBatches)
    if (batch <= options.largest)
      out += lines(
          deserialize(run_ranks(kRanks, kSegments,
                                [&](const Groups& groups) { return serialize(run_batch(groups, options, batch)); })),
          batch);
  if (options.report.empty())
    std::cout << out;
  else
    write_file(options.report + ".md", out);
}

flags::Table table_of(Options& options) {
  return {.usage = "lockstep-bench-replicas [options]",
          .about = "Steps of two replicas in one process beside those of one process and of two.\n",
          .groups = {{"",
                      {{"--rounds", flags::integer(options.rounds.measured, 1, 1'000'000), "turns of each contender"},
                       {"--warmup", flags::integer(options.rounds.warmup, 0, 1'000'000), "turns before those"},
                       {"--largest", flags::integer(options.largest, 8, 512), "batch, for a quick look"},
                       {"--report", flags::text(options.report, "PATH"), "write PATH.md instead of standard output"},
                       {"--commit", flags::text(options.commit, "TEXT"), "what the report names as the commit"}}}}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.command = command_line("lockstep-bench-replicas", argc, argv);
  return run_program(table_of(options), argc, argv, [&](const flags::Parsed&) { run(options); });
}
