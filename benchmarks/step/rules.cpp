// lockstep-bench-rules: optimizer.step() of every optimizer against the copy bandwidth of the machine, by the bytes
// that its step must move.

#include <ATen/Parallel.h>

#include <algorithm>
#include <iostream>

#include "benchmarks/step/copy.h"
#include "benchmarks/step/engine_step.h"
#include "benchmarks/step/measure.h"
#include "benchmarks/step/report.h"
#include "benchmarks/support/output.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/ranks.h"
#include "benchmarks/support/statistics.h"
#include "lockstep/flags/values.h"

namespace {

using namespace lockstep;
using namespace lockstep::bench;

constexpr int kRanks = 2;
constexpr int kSegments = 3;  // the clock's, the engine's, the copies'

struct Row {
  const char* name;
  EngineOptimizer optimizer;
};

// Each slot is read, weights and state are read and written. A rule that needs norms first moves more: either reads the
// slots and weights a second time, or reads what its first half has left, and the weights again, and writes them.
template <class Options>
Row row(const char* name, const Options& options) {
  using Rule = decltype(optim::rule_for(options, 1));
  const double arrays = optim::rule_for(options, 1).arrays();
  const double again = optim::MovesByMeasured<Rule> ? 3 : optim::NeedsNorms<Rule> ? kRanks + 1 : 0;
  return {
      name,
      {[options](optim::Target& target) { return std::make_unique<optim::FusedOptimizer<Options>>(target, options); },
       sizeof(float) * (kRanks + 2 * (1 + arrays) + again)}};
}

std::vector<Row> rows() {
  return {row("SGD", optim::SGDOptions{}),
          row("SGD, momentum", optim::SGDOptions{.momentum = 0.9, .weight_decay = 1e-4}),
          row("Adam", optim::AdamOptions{}),
          row("Adam, amsgrad", optim::AdamOptions{.amsgrad = true}),
          row("AdamW", optim::AdamWOptions{}),
          row("NAdam", optim::NAdamOptions{}),
          row("RAdam", optim::RAdamOptions{}),
          row("RMSprop", optim::RMSpropOptions{}),
          row("RMSprop, centered, momentum", optim::RMSpropOptions{.momentum = 0.9, .centered = true}),
          row("Adagrad", optim::AdagradOptions{}),
          row("Adadelta", optim::AdadeltaOptions{}),
          row("Lion", optim::LionOptions{}),
          row("LARS, momentum", optim::LARSOptions{.momentum = 0.9, .weight_decay = 1e-4}),
          row("LAMB", optim::LAMBOptions{})};
}

struct Options {
  Rounds rounds;
  int narrow = 1;
  std::string report;  // path without extension; empty: standard output
  std::string commit = "unknown";
  std::string command;
};

Section run_row(const Groups& groups, const Options& options, const Row& row) {
  at::set_num_threads(1);
  const Shapes shapes = resnet50_shapes(options.narrow);
  std::vector<std::unique_ptr<Contender>> contenders =
      make_copies(groups[2], std::size_t(double(weights_of(shapes)) * row.optimizer.bytes_per_weight / 2), Pages::huge);
  contenders.push_back(make_engine_step(groups[1], shapes, row.optimizer, Pages::huge));
  torch::manual_seed(1 + std::uint64_t(groups[0]->rank()));
  Gradients gradients;
  for (const auto& [name, sizes] : shapes) gradients.push_back(torch::randn(sizes) * 0.01);
  return {row.name, measure(*groups[0], contenders, gradients, options.rounds), "ResNet-50", weights_of(shapes)};
}

// The step is the last contender, the best of the others the yardstick.
std::string line(const Section& section, double bytes_per_weight) {
  const Timings& step = section.timings.back();
  double copy_rate = 0;
  for (auto copy = section.timings.begin(); copy + 1 != section.timings.end(); ++copy)
    copy_rate = std::max(copy_rate, copy->bytes / spread_of(copy->seconds).median);
  const Spread seconds = spread_of(step.seconds);
  return text("| %s | %.0f | %.2f | %.2f-%.2f | %.0f %% |\n", section.optimizer.c_str(), bytes_per_weight,
              seconds.median * 1e3, seconds.p10 * 1e3, seconds.p90 * 1e3,
              100 * step.bytes / seconds.median / copy_rate);
}

void run(const Options& options) {
  const Machine m = read_machine();
  std::string out = "# Every optimizer\n\n";
  out += text(
      "`optimizer.step()` over the weights of ResNet-50 in float32, %d processes with one computing thread each, "
      "beside copies "
      "of as many bytes, in turns: %d rounds after %d to warm up.\n\n",
      kRanks, options.rounds.measured, options.rounds.warmup);
  out += text("- machine: %s, %d cores, %.1f GiB memory, Linux %s, load %.2f before\n", m.cpu.c_str(), m.cores,
              double(m.memory_bytes) / (1 << 30), m.kernel.c_str(), m.load);
  out += std::string("- instruction set of the kernel: ") + optim::instruction_set() + "\n";
  out += "- commit: " + options.commit + "\n- command: `" + options.command + "`\n\n";
  out += "| optimizer | bytes a weight | median ms | p10-p90 ms | of the best copy |\n|---|---:|---:|---:|---:|\n";
  for (const Row& row : rows())
    out += line(deserialize(run_ranks(kRanks, kSegments,
                                      [&](const Groups& groups) { return serialize(run_row(groups, options, row)); })),
                row.optimizer.bytes_per_weight);
  if (options.report.empty())
    std::cout << out;
  else
    write_file(options.report + ".md", out);
}

flags::Table table_of(Options& options) {
  return {.usage = "lockstep-bench-rules [options]",
          .about = "optimizer.step() of every optimizer, 2 processes, against copying memory.\n",
          .groups = {{"",
                      {{"--rounds", flags::integer(options.rounds.measured, 1, 1'000'000), "turns of each contender"},
                       {"--warmup", flags::integer(options.rounds.warmup, 0, 1'000'000), "turns before those"},
                       {"--narrow", flags::integer(options.narrow, 1, 64), "divide the widths, for a quick look"},
                       {"--report", flags::text(options.report, "PATH"), "write PATH.md instead of standard output"},
                       {"--commit", flags::text(options.commit, "TEXT"), "what the report names as the commit"}}}}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.command = command_line("lockstep-bench-rules", argc, argv);
  return run_program(table_of(options), argc, argv, [&](const flags::Parsed&) { run(options); });
}
