// lockstep-bench-overhead: what parts of the library add to a step: a world of one beside the loop that libtorch's user
// writes, the checks of replicas and of nodes' copies, SyncBatchNorm beside BatchNorm.

#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <iostream>

#include "benchmarks/step/contender.h"
#include "benchmarks/step/measure.h"
#include "benchmarks/step/report.h"
#include "benchmarks/step/workload.h"
#include "benchmarks/support/machine.h"
#include "benchmarks/support/output.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/ranks.h"
#include "benchmarks/support/statistics.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/flags/values.h"
#include "lockstep/memory/caching_allocator.h"
#include "lockstep/optim.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/named_tensors.h"
#include "lockstep/parallel/node_check.h"
#include "lockstep/parallel/replica_check.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "lockstep/state/shared_state.h"

namespace {

using namespace lockstep;
using namespace lockstep::bench;
using Model = std::shared_ptr<models::ImageModel>;
using Group = std::shared_ptr<comm::Group>;
using StepBody = std::function<void()>;

constexpr int kRanks = 2;
constexpr int kSegments = 4;  // the clock's, one of each way's of two ranks
constexpr double kRate = 0.001;

at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}

struct Batch {
  at::Tensor data, target;
};

// The loop of a program without Lockstep, and of torch::optim within it.
StepBody plain(const Workload& workload, const Group&, const Batch& batch) {
  const Model model = workload.model();
  auto sgd = std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(kRate));
  return [=] {
    sgd->zero_grad();
    loss_of(model->forward(batch.data), batch.target).backward();
    sgd->step();
  };
}

StepBody with_torch_optim(const Workload& workload, const Group& group, const Batch& batch,
                          const DataParallelOptions& options) {
  auto ddp = std::make_shared<DistributedDataParallel<Model>>(workload.model(), group, options);
  auto sgd = std::make_shared<torch::optim::SGD>(ddp->module().parameters(), torch::optim::SGDOptions(kRate));
  return [=] {
    sgd->zero_grad();
    loss_of((*ddp)(batch.data), batch.target).backward();
    sgd->step();
  };
}

StepBody with_ours(const Model& model, const Group& group, const Batch& batch) {
  auto ddp = std::make_shared<DistributedDataParallel<Model>>(model, group);
  auto sgd = std::make_shared<optim::SGD>(*ddp, optim::SGDOptions{.lr = kRate});
  return [=] {
    loss_of((*ddp)(batch.data), batch.target).backward();
    sgd->step();
  };
}

struct Way {
  const char* name;
  std::function<StepBody(const Workload&, const Group&, const Batch&)> make;
  bool is_part = false;  ///< of a step: what it adds is its own time
};

Way classic(const char* name, std::uint64_t verify_every) {
  return {name, [verify_every](const Workload& workload, const Group& group, const Batch& batch) {
            return with_torch_optim(workload, group, batch, {.verify_replicas_every = verify_every});
          }};
}

// What it adds to a step is less than steps differ by.
Way check_alone() {
  return {"the check alone",
          [](const Workload& workload, const Group& group, const Batch&) {
            const Model model = workload.model();
            return
                [model, group, named = parallel::parameters_of(*model)] { parallel::check_replicas(*group, named, 1); };
          },
          true};
}

Way fused(const char* name, bool sync_bn) {
  return {name, [sync_bn](const Workload& workload, const Group& group, const Batch& batch) {
            const Model model = workload.model();
            return with_ours(sync_bn ? convert_sync_batchnorm(model, group) : model, group, batch);
          }};
}

// What a rank does for it where nodes compare their copies: its hash travels in what they tell each other anyway.
Way hash_of_a_copy() {
  return {"verify_replicas_every 1 over nodes: the hash of weights and momentum alone",
          [](const Workload& workload, const Group& group, const Batch&) {
            auto ddp = std::make_shared<DistributedDataParallel<Model>>(workload.model(), group);
            auto sgd = std::make_shared<optim::SGD>(*ddp, optim::SGDOptions{.lr = kRate, .momentum = 0.9});
            return [ddp, sgd, group] {
              const state::SharedState& copy = *ddp->state().shared();
              (void)parallel::part_of_hash(copy, int(copy.committed().buffer), group->rank(), group->size());
            };
          },
          true};
}

struct Comparison {
  const char* title;
  const char* workload;
  int steps;              // in a turn: the shorter a step, the more
  bool alone;             // rank 0 trains, its peer waits
  std::vector<Way> ways;  // the others beside the first
};

std::vector<Comparison> comparisons() {
  const std::vector<Way> world_of_one = {{"plain libtorch loop, torch::optim::SGD", plain},
                                         classic("DistributedDataParallel, torch::optim::SGD", 0),
                                         fused("DistributedDataParallel, lockstep::optim::SGD", false)};
  return {{"A world of one: MLP 64-64-10", "mlp", 200, true, world_of_one},
          {"A world of one: MNIST ConvNet", "convnet", 3, true, world_of_one},
          {"Two ranks: the check of replicas, ResNet-18 with CIFAR stem",
           "resnet18_cifar",
           1,
           false,
           {classic("torch::optim::SGD", 0), classic("verify_replicas_every 1", 1), check_alone()}},
          {"Two ranks of a node: the check of its copy, ResNet-18 with CIFAR stem",
           "resnet18_cifar",
           1,
           false,
           {fused("lockstep::optim::SGD", false), hash_of_a_copy()}},
          {"Two ranks: SyncBatchNorm, ResNet-18 with CIFAR stem",
           "resnet18_cifar",
           1,
           false,
           {fused("BatchNorm", false), fused("SyncBatchNorm", true)}}};
}

class Steps final : public Contender {
 public:
  Steps(const Comparison& comparison, const Way& way, const Group& group, std::int64_t batch)
      : name_(way.name), steps_(comparison.steps) {
    if (comparison.alone && group->rank() != 0) return;
    torch::manual_seed(0);
    const Workload& workload = find_workload(comparison.workload);
    std::vector<std::int64_t> shape{std::min(batch, workload.batch)};
    shape.insert(shape.end(), workload.sample.begin(), workload.sample.end());
    const Batch drawn{torch::randn(shape), torch::randint(workload.classes, {shape[0]}, at::kLong)};
    step_ = way.make(workload, comparison.alone ? std::make_shared<comm::SingleGroup>() : group, drawn);
  }
  std::string name() const override { return name_; }
  std::string kind() const override { return "ours"; }
  void prepare(const Gradients&) override {}
  void run() override {
    if (step_)
      for (int i = 0; i < steps_; ++i) step_();
  }

 private:
  const char* name_;
  int steps_;
  StepBody step_;
};

struct Options {
  Rounds rounds;
  std::int64_t batch = 100;  // at most
  std::string report;        // path without extension; empty: standard output
  std::string commit = "unknown";
  std::string command;
};

Section run_comparison(const Groups& groups, const Options& options, const Comparison& comparison) {
  at::set_num_threads(1);
  // For all of them: without it a step's time is that of the pages which the C library hands back and asks for again,
  // the more so the more contenders share a process.
  memory::use_caching_allocator();
  std::vector<std::unique_ptr<Contender>> contenders;
  for (std::size_t i = 0; i < comparison.ways.size(); ++i) {
    const Group& group = comparison.alone ? groups[0] : groups[1 + i];
    contenders.push_back(std::make_unique<Steps>(comparison, comparison.ways[i], group, options.batch));
  }
  return {"SGD", measure(*groups[0], contenders, {}, options.rounds), comparison.workload, 0};
}

// Turns beside each other are compared, so that what the machine does to both is in neither's figure.
std::string line(const Section& section, const Timings& timings, int steps, bool is_part) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < timings.seconds.size(); ++i)
    ratios.push_back(timings.seconds[i] / section.timings.front().seconds[i]);
  const Spread seconds = spread_of(timings.seconds), ratio = spread_of(ratios);
  const double first = is_part ? 0 : spread_of(section.timings.front().seconds).median;
  return text("| %s | %.4f | %.4f-%.4f | %.3f | %.3f-%.3f | %+.1f |\n", timings.name.c_str(),
              seconds.median * 1e3 / steps, seconds.p10 * 1e3 / steps, seconds.p90 * 1e3 / steps, ratio.median,
              ratio.p10, ratio.p90, (seconds.median - first) * 1e6 / steps);
}

void run(const Options& options) {
  const Machine m = read_machine();
  std::string out = "# What parts of the library add to a step\n\n";
  out += text(
      "Whole steps in float32 with SGD, one computing thread for each process, in turns: %d rounds after %d to warm "
      "up. "
      "A turn is of 200 steps of the MLP, 3 of the ConvNet, 1 of ResNet-18. The ratio is the median over the rounds, "
      "of a turn to the first row's turn of the same round. All rows run with `memory::use_caching_allocator()`.\n\n",
      options.rounds.measured, options.rounds.warmup);
  out += text("- machine: %s, %d cores, %.1f GiB memory, Linux %s, load %.2f before\n", m.cpu.c_str(), m.cores,
              double(m.memory_bytes) / (1 << 30), m.kernel.c_str(), m.load);
  out += "- commit: " + options.commit + "\n- command: `" + options.command + "`\n";
  for (const Comparison& comparison : comparisons()) {
    const Section section = deserialize(run_ranks(kRanks, kSegments, [&](const Groups& groups) {
      return serialize(run_comparison(groups, options, comparison));
    }));
    out += text("\n## %s, batch %ld\n\n", comparison.title,
                long(std::min(options.batch, find_workload(comparison.workload).batch)));
    out += "| | median ms a step | p10-p90 ms | ratio | p10-p90 | added µs a step |\n|---|---:|---:|---:|---:|---:|\n";
    for (std::size_t i = 0; i < section.timings.size(); ++i)
      out += line(section, section.timings[i], comparison.steps, comparison.ways[i].is_part);
  }
  if (options.report.empty())
    std::cout << out;
  else
    write_file(options.report + ".md", out);
}

flags::Table table_of(Options& options) {
  return {.usage = "lockstep-bench-overhead [options]",
          .about = "Steps with and without parts of the library, beside each other.\n",
          .groups = {{"",
                      {{"--rounds", flags::integer(options.rounds.measured, 1, 1'000'000), "turns of each contender"},
                       {"--warmup", flags::integer(options.rounds.warmup, 0, 1'000'000), "turns before those"},
                       {"--batch", flags::integer(options.batch, 2, 100), "samples at most, for a quick look"},
                       {"--report", flags::text(options.report, "PATH"), "write PATH.md instead of standard output"},
                       {"--commit", flags::text(options.commit, "TEXT"), "what the report names as the commit"}}}}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.command = command_line("lockstep-bench-overhead", argc, argv);
  return run_program(table_of(options), argc, argv, [&](const flags::Parsed&) { run(options); });
}
