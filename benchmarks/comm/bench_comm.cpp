// lockstep bench comm: our collectives alone, on processes of this machine. Beside Gloo and Open MPI
// they are measured by benchmarks/comm/comm.py.

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>

#include "benchmarks/support/output.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/ranks.h"
#include "benchmarks/support/statistics.h"
#include "lockstep/base/core_binding.h"
#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/shm/shm_group.h"
#include "lockstep/flags/values.h"

namespace {

using namespace lockstep;
using namespace lockstep::bench;

struct Options {
  int ranks = 2;
  double seconds = 0.2;        // of calls, for each row
  std::int64_t largest = 256;  // MiB
  comm::Sizes sizes;
  std::int64_t look = base::Waiting{}.look.count();  // microseconds, as the next
  std::int64_t yield = base::Waiting{}.yield.count();
  int check_calls = 1;
};

constexpr int kMostCalls = 2000;

// The monotonic clock is one for all processes of a machine.
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// What a row measures: from the first rank's start to the last rank's end, or, where rank 0 is late, from its start.
struct Call {
  std::string name;
  std::function<void()> prepare;
  std::function<void()> run;
  double late = 0;  // seconds that the others wait for rank 0
};

void be_late(double seconds) {
  for (const double end = now() + seconds; now() < end;) {
  }
}

// The seconds of each of `calls` calls.
std::vector<double> time_calls(comm::Group& group, int calls, const Call& call) {
  const at::Tensor mine = at::zeros({2, calls}, at::kDouble);
  double* times = mine.mutable_data_ptr<double>();
  for (int i = 0; i < calls; ++i) {
    call.prepare();
    group.barrier();
    if (group.rank() == 0) be_late(call.late);
    times[i] = now();
    call.run();
    times[calls + i] = now();
  }
  const std::vector<at::Tensor> all = group.all_gather(mine);
  std::vector<double> seconds;
  for (int i = 0; i < calls; ++i) {
    double start = all.front().const_data_ptr<double>()[i];
    double end = times[calls + i];
    for (const at::Tensor& other : all) {
      if (call.late == 0) start = std::min(start, other.const_data_ptr<double>()[i]);
      end = std::max(end, other.const_data_ptr<double>()[calls + i]);
    }
    seconds.push_back(end - start);
  }
  return seconds;
}

std::string row(comm::Group& group, const Options& options, const Call& call) {
  const double first = spread_of(time_calls(group, 5, call)).median + call.late;  // the same on all ranks
  const int calls = std::clamp(int(options.seconds / first), 5, kMostCalls);
  const Spread us = spread_of(time_calls(group, calls, call));
  return text("%-24s %12.2f us   (p10-p90 %.2f-%.2f, %d calls)\n", call.name.c_str(), us.median * 1e6, us.p10 * 1e6,
              us.p90 * 1e6, calls);
}

std::string measure(comm::Group& group, const Options& options) {
  at::set_num_threads(1);
  dynamic_cast<comm::ShmGroup&>(group).set_sizes(options.sizes);
  group.node().member.set_compares_calls(options.check_calls == 1);
  group.node().member.set_waiting({std::chrono::microseconds(options.look), std::chrono::microseconds(options.yield)});
  // Two ranks on one core would measure the scheduler.
  const comm::Topology& place = group.topology();
  if (place.local_world <= base::affinity_cores()) base::bind_to_own_cores(place.local_rank, place.local_world, 1);
  const auto nothing = [] {};
  const auto barrier = [&] { group.barrier(); };
  std::string rows = row(group, options, {"barrier", nothing, barrier});
  // While the others wait they look, yield or sleep.
  if (group.size() > 1) {
    for (const auto& [name, late] :
         {std::pair{"rank 0 200 us late", 200e-6}, {"rank 0 1 ms late", 1e-3}, {"rank 0 5 ms late", 5e-3}})
      rows += row(group, options, {std::string("barrier, ") + name, nothing, barrier, late});
  }
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"4 B", 4},         {"1 KiB", 1 << 10},   {"2 KiB", 2 << 10},    {"4 KiB", 4 << 10},
      {"8 KiB", 8 << 10}, {"16 KiB", 16 << 10}, {"64 KiB", 64 << 10},  {"1 MiB", 1 << 20},
      {"4 MiB", 4 << 20}, {"25 MiB", 25 << 20}, {"256 MiB", 256 << 20}};
  for (const auto& [name, bytes] : sizes) {
    if (bytes > options.largest << 20) continue;
    for (const bool shared : {false, true}) {
      const std::int64_t elements = bytes / std::int64_t(sizeof(float));
      const at::Tensor tensor = shared ? group.shared_empty({elements}) : at::zeros({elements});
      rows += row(group, options,
                  {std::string(name) + (shared ? ", zero copy" : ", staged"), [&] { tensor.fill_(group.rank() + 1); },
                   [&] { group.all_reduce(tensor); }});
    }
  }
  return rows;
}

flags::Table table_of(Options& o) {
  constexpr std::int64_t kMostMicroseconds = 1'000'000;
  return {
      .usage = "lockstep bench comm [options]",
      .about =
          "All-reduce of float32 and barrier: microseconds of a call, from the first rank's start to the last one's "
          "end.\n",
      .groups = {
          {"",
           {{"--ranks", flags::integer(o.ranks, 1, 64), "processes"},
            {"--seconds", flags::real(o.seconds, flags::kPositive), "of calls for each row"},
            {"--largest", flags::integer(o.largest, 0, 1024), "MiB of the largest tensor"},
            {"--at-once", flags::integer(o.sizes.at_once, 64, 256 << 10),
             "bytes up to which one meeting does: what the default brings"},
            {"--chunk", flags::integer(o.sizes.chunk, 4 << 10, 256 << 10),
             "bytes that go through the staging areas between two meetings"},
            {"--look", flags::integer(o.look, 0, kMostMicroseconds),
             "microseconds of looking, before a rank that waits yields"},
            {"--yield", flags::integer(o.yield, 0, kMostMicroseconds), "microseconds of yielding, before it sleeps"},
            {"--check-calls", flags::integer(o.check_calls, 0, 1),
             "1: what the ranks call is compared; 0: it is not"}}}}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  return run_program(table_of(options), argc, argv, [&](const flags::Parsed&) {
    std::cout << run_ranks(options.ranks, 1, [&](const Groups& groups) { return measure(*groups.front(), options); });
  });
}
