#include "benchmarks/step/measure.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace lockstep::bench {
namespace {

// The monotonic clock is one for all processes of a machine.
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// No rank uses a core for a while: threads of a contender's own (Gloo's) must not meet cores on which ranks spun in the
// barrier. Awake again before the end, so that a late timer does not count.
void rest() {
  using namespace std::chrono_literals;
  const auto end = std::chrono::steady_clock::now() + 300us;
  std::this_thread::sleep_until(end - 100us);
  while (std::chrono::steady_clock::now() < end) {
  }
}

double turn(comm::Group& group, Contender& contender, const Gradients& gradients) {
  contender.prepare(gradients);
  group.barrier();
  rest();
  const at::Tensor mine = at::empty({2}, at::kDouble);
  double* times = mine.mutable_data_ptr<double>();
  times[0] = now();
  contender.run();
  times[1] = now();
  double start = times[0];
  double end = times[1];
  for (const at::Tensor& other : group.all_gather(mine)) {
    start = std::min(start, other.const_data_ptr<double>()[0]);
    end = std::max(end, other.const_data_ptr<double>()[1]);
  }
  return end - start;
}

}  // namespace

std::vector<Timings> measure(comm::Group& group, const std::vector<std::unique_ptr<Contender>>& contenders,
                             const Gradients& gradients, Rounds rounds) {
  std::vector<Timings> timings(contenders.size());
  for (int round = 0; round < rounds.warmup + rounds.measured; ++round)
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const std::size_t which = (i + std::size_t(round)) % contenders.size();
      const double seconds = turn(group, *contenders[which], gradients);
      if (round >= rounds.warmup) timings[which].seconds.push_back(seconds);
    }
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    timings[i].name = contenders[i]->name();
    timings[i].kind = contenders[i]->kind();
    timings[i].page_size = contenders[i]->page_size();
    timings[i].bytes = contenders[i]->bytes();
  }
  return timings;
}

}  // namespace lockstep::bench
