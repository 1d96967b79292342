// lockstep-bench-reduce-update: how long a step takes once the gradients are there, for
// Lockstep, for Gloo + torch's optimizers, and against the copy bandwidth of the machine. See
// docs/design/update.md.

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "benchmarks/peer/gloo_peer.h"
#include "benchmarks/step/copy.h"
#include "benchmarks/step/engine_step.h"
#include "benchmarks/step/measure.h"
#include "benchmarks/step/report.h"
#include "benchmarks/step/update_step.h"
#include "benchmarks/support/output.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/ranks.h"
#include "lockstep/base/error.h"
#include "lockstep/flags/values.h"

namespace {

using namespace lockstep;
using namespace lockstep::bench;

constexpr int kRanks = 2;
constexpr int kSegments = 10;  // one for the clock, four a kind of pages, one for bfloat16

// Whose parameters are updated. Of a brief one only what the verdict is about takes part: 100 M weights would not fit
// into memory as often as all contenders need them.
struct Model {
  const char* name;
  const char* title;
  Shapes (*shapes)(int narrow);
  bool brief;
};
constexpr Model kModels[] = {
    {"resnet18_cifar", "ResNet-18 with CIFAR stem", resnet18_cifar_shapes, true},
    {"resnet50", "ResNet-50", resnet50_shapes, false},
    {"square_mlp", "six layers of 4096 x 4096", square_mlp_shapes, true},
};
std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Model& model : kModels) names.emplace_back(model.name);
  return names;
}

struct Options {
  std::vector<std::string> models = model_names();
  Rounds rounds;
  int narrow = 1;
  int peer_threads = 2;
  std::string report;  // path without extension; empty: Markdown to standard output
  std::string commit = "unknown";
  std::string command;
};

using Contenders = std::vector<std::unique_ptr<Contender>>;

void append(Contenders& to, Contenders from) {
  for (auto& contender : from) to.push_back(std::move(contender));
}

// Those in shared memory with one kind of pages; takes four of the groups.
Contenders shared_contenders(const Groups& groups, std::size_t first, const Model& model, const Shapes& shapes,
                             OptimizerKind kind, Pages pages) {
  Contenders all;
  all.push_back(make_engine_step(groups[first], shapes, engine_optimizer(kind, kRanks), pages));
  if (!model.brief) {
    const auto two_buffers = make_state(groups[first + 1], shapes, kind, 2, pages);
    for (const optim::Stores stores : {optim::Stores::streaming, optim::Stores::plain})
      all.push_back(make_update_step(groups[first + 1], two_buffers, kind, {stores, pages}));
    const auto one_buffer = make_state(groups[first + 2], shapes, kind, 1, pages);
    all.push_back(make_update_step(groups[first + 2], one_buffer, kind, {optim::Stores::plain, pages}));
  }
  const std::size_t bytes = std::size_t(weights_of(shapes)) * sizeof(float) * std::size_t(1 + state_arrays(kind));
  append(all, make_copies(groups[first + 3], bytes, pages));
  return all;
}

// Half the bytes of gradients.
Contenders bf16_contenders(const std::shared_ptr<comm::Group>& group, const Shapes& shapes, OptimizerKind kind) {
  const auto state = make_state(group, shapes, kind, 2, Pages::huge, SlotType::bf16);
  Contenders all;
  for (const bool copies : {true, false})
    all.push_back(make_update_step(group, state, kind, {optim::Stores::streaming, Pages::huge, copies}));
  return all;
}

Section run_section(const Groups& groups, const Options& options, const Model& model, OptimizerKind kind,
                    const std::string& store_file) {
  at::set_num_threads(1);
  comm::Group& clock = *groups[0];
  const Shapes shapes = model.shapes(options.narrow);
  Contenders contenders = shared_contenders(groups, 1, model, shapes, kind, Pages::huge);
  if (!model.brief) {
    append(contenders, bf16_contenders(groups[9], shapes, kind));
    append(contenders, shared_contenders(groups, 5, model, shapes, kind, Pages::small));
  }
  append(contenders, make_gloo_peers({clock.rank(), clock.size(), store_file}, shapes, kind,
                                     model.brief ? 1 : options.peer_threads));
  torch::manual_seed(1 + std::uint64_t(clock.rank()));
  Gradients gradients;
  for (const auto& [name, sizes] : shapes) gradients.push_back(torch::randn(sizes) * 0.01);
  return {to_string(kind), measure(clock, contenders, gradients, options.rounds), model.title, weights_of(shapes)};
}

// A file name that exists only while it lives.
class ScratchFile {
 public:
  ScratchFile() {
    path_ = (std::filesystem::temp_directory_path() / "lockstep-bench-XXXXXX").string();
    const int fd = mkstemp(path_.data());
    if (fd < 0) throw_errno("benchmark: cannot make " + path_);
    close(fd);
  }
  ~ScratchFile() { unlink(path_.c_str()); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void run(const Options& options) {
  Report report{.machine = read_machine(),
                .commit = options.commit,
                .command = options.command,
                .instruction_set = optim::instruction_set(),
                .ranks = kRanks,
                .rounds = options.rounds};
  for (const Model& model : kModels) {
    if (std::find(options.models.begin(), options.models.end(), model.name) == options.models.end()) continue;
    for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adam}) {
      const ScratchFile store;
      report.sections.push_back(deserialize(run_ranks(kRanks, kSegments, [&](const Groups& groups) {
        return serialize(run_section(groups, options, model, kind, store.path()));
      })));
    }
  }
  if (options.report.empty()) {
    std::cout << to_markdown(report);
  } else {
    write_file(options.report + ".md", with_plot(options.report, to_markdown(report)));
    write_file(options.report + ".json", to_json(report));
  }
}

flags::Table table_of(Options& options) {
  return {
      .usage = "lockstep-bench-reduce-update [options]",
      .about = "Reduce + update, 2 processes: Lockstep, Gloo + torch's optimizers, copy bandwidth.\n",
      .groups = {
          {"",
           {{"--rounds", flags::integer(options.rounds.measured, 1, 1'000'000), "turns of each contender"},
            {"--warmup", flags::integer(options.rounds.warmup, 0, 1'000'000), "turns before those"},
            {"--model", flags::several_of(options.models, model_names()), "", "all of them"},
            {"--narrow", flags::integer(options.narrow, 1, 64), "divide the widths of the model, for a quick look"},
            {"--peer-threads", flags::integer(options.peer_threads, 1, 64),
             "try torch's optimizers with 1 to N threads a rank"},
            {"--report", flags::text(options.report, "PATH"), "write PATH.md and PATH.json instead of standard output"},
            {"--commit", flags::text(options.commit, "TEXT"), "what the report names as the measured commit"}}}}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.command = command_line("lockstep-bench-reduce-update", argc, argv);
  return run_program(table_of(options), argc, argv, [&](const flags::Parsed&) { run(options); });
}
