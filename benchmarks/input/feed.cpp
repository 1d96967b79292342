// lockstep-bench-feed: does the loader keep a training job fed? The same steps with batches from the loader and with
// batches that were made before, in turns: what the loader takes from the cores counts, as well as waiting for it.

#include <ATen/Parallel.h>
#include <malloc.h>
#include <torch/nn/functional/loss.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "benchmarks/support/machine.h"
#include "benchmarks/support/output.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/ranks.h"
#include "benchmarks/support/statistics.h"
#include "lockstep/base/error.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/flags/values.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/train/input.h"
#include "lockstep/train/make_model.h"

namespace {

using namespace lockstep;
using namespace lockstep::bench;
using nlohmann::ordered_json;
using Model = std::shared_ptr<models::ImageModel>;

constexpr int kRanks = 2;

struct Job {
  std::string name;
  train::Options options;
  int steps = 0;  // of a turn
};

struct Settings {
  std::string mnist, cifar;
  int rounds = 8;
  double length = 1;  // of a turn, 1: as in the report
  std::string report, commit = "unknown", command;
};

std::vector<Job> make_jobs(const Settings& settings) {
  const auto steps = [&](int full) { return std::max(2, int(full * settings.length)); };
  return {{"MNIST, ConvNet, 100 samples per process",
           {.model = "convnet",
            .dataset = "mnist",
            .data_path = settings.mnist,
            .batch_size = 100,
            .transforms = "mnist",
            .eval = false},
           steps(80)},
          {"CIFAR-10 JPEG files with crop, flip and normalise, ResNet-18 (CIFAR stem), 16 samples per process",
           {.model = "resnet18_cifar",
            .dataset = "imagefolder",
            .data_path = settings.cifar,
            .batch_size = 16,
            .transforms = "cifar",
            .eval = false},
           steps(10)}};
}

// A rank's part of a job, ready to train.
class Trainer {
 public:
  Trainer(const Job& job, const std::shared_ptr<comm::Group>& group)
      : job_(job),
        group_(*group),
        input_(train::make_input(job.options)),
        model_(train::make_model(job.options, input_.task)),
        ddp_(model_, group, {.shards = kRanks, .channels_last = true}),  // as fast as it goes: the loader must keep up
        optimizer_(train::make_optimizer(job.options, *model_, ddp_)) {
    data::DataLoader loader(input_.train, ddp_.part(), loading());
    for (int step = 0; step < job_.steps; ++step) made_.push_back(take(loader));
  }

  /// The seconds of a turn, from the first rank's start to the last one's end. A new loader each time: that it
  /// starts with nothing made counts too.
  double with_loader() {
    return timed([&] {
      data::DataLoader loader(input_.train, ddp_.part(), loading());
      for (int number = 0; number < job_.steps; ++number) step(take(loader));
    });
  }
  double with_made() {
    return timed([&] {
      for (const data::Batch& batch : made_) step(batch);
    });
  }

 private:
  data::DataLoaderOptions loading() const {
    const train::BatchPlan plan = train::plan_batch(job_.options, kRanks, input_.train->size());
    return {.global_batch_size = plan.global_batch, .shuffle = true, .total_batches = job_.steps};
  }

  static data::Batch take(data::DataLoader& loader) {
    std::optional<data::Batch> batch = loader.next();
    return batch ? *std::move(batch) : *loader.next();  // the first one of the next epoch
  }

  template <class Turn>
  double timed(Turn&& turn) {
    group_.barrier();
    const auto start = std::chrono::steady_clock::now();
    turn();
    group_.barrier();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void step(const data::Batch& batch) {
    for (auto& shard : ddp_.shards(batch)) {
      const at::Tensor loss = torch::nn::functional::cross_entropy(ddp_(shard.data), shard.target);
      loss.backward();
      ddp_.record(loss.item<double>(), shard.target.size(0));
    }
    optimizer_->step();
  }

  const Job& job_;
  comm::Group& group_;
  train::Input input_;
  Model model_;
  parallel::DistributedDataParallel<Model> ddp_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<data::Batch> made_;
};

// Samples a second of each turn.
ordered_json measure(const Job& job, const Settings& settings, const std::shared_ptr<comm::Group>& group) {
  at::set_num_threads(1);
  Trainer trainer(job, group);
  trainer.with_made();
  trainer.with_loader();
  const double samples = double(*job.options.batch_size) * kRanks * job.steps;
  ordered_json result = {{"job", job.name}, {"steps_of_a_turn", job.steps}};
  for (int round = 0; round < settings.rounds; ++round) {
    // Who begins changes, so that a drift of the machine's speed favours nobody.
    double loader = round % 2 == 0 ? trainer.with_loader() : 0;
    const double made = trainer.with_made();
    if (round % 2 != 0) loader = trainer.with_loader();
    result["loader"].push_back(samples / loader);
    result["made"].push_back(samples / made);
    result["ratio"].push_back(made / loader);
  }
  return result;
}

std::string row(const ordered_json& job) {
  const auto spread = [&](const char* name) { return spread_of(job.at(name).get<std::vector<double>>()); };
  const Spread loader = spread("loader"), made = spread("made"), ratio = spread("ratio");
  return text("| %s | %.0f | %.0f-%.0f | %.0f | %.0f-%.0f | %.1f %% | %.1f-%.1f %% |\n",
              job.at("job").get<std::string>().c_str(), made.median, made.p10, made.p90, loader.median, loader.p10,
              loader.p90, 100 * ratio.median, 100 * ratio.p10, 100 * ratio.p90);
}

std::string to_markdown(const ordered_json& report) {
  std::string page =
      "# Is the job kept fed?\n\n"
      "Training on two processes with batches from the loader (one thread per process, from the files on, augmented), "
      "and with the same batches made before the turn. Samples a second, median and 10th-90th percentile; the ratio "
      "is per round.\n\n";
  page += "Machine: " + report.at("cpu").get<std::string>() + ", " + std::to_string(report.at("cores").get<int>()) +
          " cores, kernel " + report.at("kernel").get<std::string>() + ", load before " +
          report.at("load").dump().substr(0, 4) + ". Commit " + report.at("commit").get<std::string>() +
          ". Command:\n\n    " + report.at("command").get<std::string>() + "\n\n";
  page += "| job | made before | spread | loader | spread | ratio | spread |\n|---|---|---|---|---|---|---|\n";
  for (const ordered_json& job : report.at("jobs")) page += row(job);
  return page;
}

void run(const Settings& settings) {
  const Machine machine = read_machine();
  ordered_json report = {{"cpu", machine.cpu},        {"cores", machine.cores},       {"kernel", machine.kernel},
                         {"load", machine.load},      {"commit", settings.commit},    {"command", settings.command},
                         {"rounds", settings.rounds}, {"jobs", ordered_json::array()}};
  for (const Job& job : make_jobs(settings))
    report["jobs"].push_back(ordered_json::parse(
        run_ranks(kRanks, 1, [&](const Groups& groups) { return measure(job, settings, groups.front()).dump(); })));
  if (settings.report.empty()) {
    std::cout << to_markdown(report);
  } else {
    write_file(settings.report + ".md", to_markdown(report));
    write_file(settings.report + ".json", report.dump(1) + "\n");
  }
}

flags::Table table_of(Settings& settings) {
  return {
      .usage = "lockstep-bench-feed --mnist DIR --cifar DIR [options]",
      .about = "Training with batches from the loader beside training with batches made before, on 2 processes.\n",
      .groups = {
          {"",
           {{"--mnist", flags::text(settings.mnist, "DIR"), "folder of MNIST's files"},
            {"--cifar", flags::text(settings.cifar, "DIR"), "CIFAR-10 as a folder of pictures: train/<class>/"},
            {"--rounds", flags::integer(settings.rounds, 1, 1'000'000), "turns of each"},
            {"--length", flags::real(settings.length, flags::kPositive), "of a turn, as a part of the usual one"},
            {"--report", flags::text(settings.report, "PATH"),
             "write PATH.md and PATH.json instead of standard output"},
            {"--commit", flags::text(settings.commit, "TEXT"), "what the report names as the measured commit"},
            {"--command", flags::text(settings.command, "TEXT"), "what the report says repeats it", "these words"}}}}};
}

}  // namespace

int main(int argc, char** argv) {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // as lockstep-trainer does
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  Settings settings;
  return run_program(table_of(settings), argc, argv, [&](const flags::Parsed& parsed) {
    for (const char* flag : {"--mnist", "--cifar"})
      if (!parsed.given(flag)) throw UsageError(std::string(flag) + " DIR is missing: both sets are read");
    if (settings.command.empty()) settings.command = command_line("lockstep-bench-feed", argc, argv);
    run(settings);
  });
}
