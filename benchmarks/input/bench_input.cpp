// lockstep-bench-input (lockstep bench input): how many pictures a second the input path makes ready, alone or
// beside torchvision + torch's DataLoader, taking turns in one run.

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>

#include "benchmarks/input/input_report.h"
#include "benchmarks/input/peer_process.h"
#include "benchmarks/support/program.h"
#include "lockstep/base/error.h"
#include "lockstep/flags/values.h"

namespace {

using namespace lockstep;
using namespace lockstep::bench;

constexpr std::int64_t kMost = 1'000'000;
constexpr int kTries = 6;  // to find how many samples a turn has

struct Turns {
  int rounds = 5;
  double seconds = 1;  // of one turn, about
};

struct Contender {
  std::function<double(std::int64_t samples)> seconds;
  Rates rates;
  std::int64_t samples = 0;  // of a turn
};

// As many as about `seconds` take; some batches at least, and as many for each worker.
std::int64_t samples_of_a_turn(double rate, const Turns& turns, const InputOptions& options) {
  const std::int64_t step = std::int64_t(options.batch_size) * options.workers;
  return std::max<std::int64_t>(3, std::int64_t(rate * turns.seconds) / step) * step;
}

// In every round each has a turn, the order rotates; the round before the first is to warm up.
void take_turns(std::vector<Contender>& contenders, const Turns& turns, const InputOptions& options) {
  for (Contender& contender : contenders) {
    // The first turn of a peer starts its processes. A short one says little of how fast it is, for it begins with an
    // order of all samples: turns grow until one takes half of what it should.
    contender.samples = samples_of_a_turn(0, turns, options);
    contender.seconds(contender.samples);
    for (int tries = 0; tries < kTries; ++tries) {
      const double took = contender.seconds(contender.samples);
      contender.samples = samples_of_a_turn(double(contender.samples) / took, turns, options);
      if (took >= turns.seconds / 2) break;
    }
  }
  for (int round = 0; round <= turns.rounds; ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      Contender& contender = contenders[(i + std::size_t(round)) % contenders.size()];
      const double rate = double(contender.samples) / contender.seconds(contender.samples);
      if (round > 0) contender.rates.rates.push_back(rate);
    }
  }
}

InputReport measure(const InputOptions& options, const Turns& turns, const std::string& python) {
  InputReport report{.input = open_case(options), .options = options};
  std::optional<PeerProcess> peer;
  if (!python.empty()) {
    if (options.data_path.empty()) throw UsageError("bench input: --peer reads files: it needs --data-path");
    peer.emplace(python, report.input, options);
    report.peer = peer->about();
  }
  const auto batches = batches_of(report.input);
  TurnTime total;
  const auto ours = [&](std::int64_t samples) {
    const TurnTime time = our_turn(batches, options, samples);
    total.whole += time.whole, total.waiting += time.waiting;
    return time.whole;
  };
  std::vector<Contender> contenders;
  const int workers = options.workers;
  contenders.push_back(
      {ours, {"lockstep, " + std::to_string(workers) + (workers == 1 ? " worker" : " workers"), "ours", {}}});
  for (std::size_t i = 0; peer && i < peer->contenders().size(); ++i) {
    const auto& [name, kind] = peer->contenders()[i];
    contenders.push_back({[&peer, i](std::int64_t samples) { return peer->seconds(i, samples); }, {name, kind, {}}});
  }
  take_turns(contenders, turns, options);
  for (Contender& contender : contenders) report.contenders.push_back(std::move(contender.rates));
  report.waiting = total.waiting / total.whole;
  report.split = split_of(report.input, std::clamp<std::int64_t>(contenders[0].samples / 2, 100, 20'000));
  return report;
}

flags::Table table_of(InputOptions& options, Turns& turns, std::string& python, bool& json) {
  return {.usage = "lockstep bench input [options]",
          .about = "How many pictures a second the input path makes ready.\n",
          .groups = {
              {"",
               {{"--data-path", flags::text(options.data_path, "DIR"),
                 "an ImageFolder (a folder per class), or a folder with MNIST's files", "pictures are made up"},
                {"--transforms", flags::text(options.transforms, "NAME"),
                 "cifar (RandomCrop 32 of padding 4, flip), photos (RandomResizedCrop 224, flip) or mnist (none); all "
                 "end in ToTensor and Normalize",
                 "what fits the pictures"},
                {"--in-memory", flags::on(options.in_memory), "decode all pictures before"},
                {"--workers", flags::integer(options.workers, 1, kMost), "threads of the loader"},
                {"--batch-size", flags::integer(options.batch_size, 1, kMost), "pictures in a batch"},
                {"--rounds", flags::integer(turns.rounds, 1, kMost), "turns of each contender"},
                {"--seconds", flags::real(turns.seconds, flags::kPositive), "of one turn, about"},
                {"--peer", flags::text(python, "PROGRAM"), "a Python with torchvision: measures its DataLoader beside"},
                {"--json", flags::on(json), "every turn's rate, for programs"}}}}};
}

}  // namespace

int main(int argc, char** argv) {
  InputOptions options;
  Turns turns;
  std::string python;
  bool json = false;
  return run_program(table_of(options, turns, python, json), argc, argv, [&](const flags::Parsed&) {
    // The only operator of a turn is the order's, which takes no time; libtorch's second thread would spin behind it.
    at::set_num_threads(1);
    const InputReport report = measure(options, turns, python);
    std::fputs((json ? to_json(report) : to_text(report)).c_str(), stdout);
  });
}
