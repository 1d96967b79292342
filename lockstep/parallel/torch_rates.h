#pragma once

// Schedules for an optimizer of torch::optim, on the classic path.
//
//   torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
//   lockstep::TorchRates rates(sgd);
//   ...
//   rates.set_lr(schedule, step);  // before sgd.step(), of the steps done so far
//
// Python's schedulers write the rate that a group was made with into it, as `initial_lr`; libtorch's groups have no
// place for it, so it is here.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/optim/schedules/schedule.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep::parallel {

class TorchRates {
 public:
  /// The rates that its groups have now are those that schedules begin with: before a state is loaded into it. It must
  /// outlive this. Groups that are added later are an UsageError.
  explicit TorchRates(torch::optim::Optimizer& optimizer);

  /// Sets the rate of each group to what `schedule` says after t steps (or epochs), and its momentum (SGD's, RMSprop's,
  /// the first of the betas) if the schedule has one. UsageError when a rate is out of range, or when the optimizer has
  /// no momentum; then nothing is set.
  void set_lr(const optim::Schedule& schedule, std::uint64_t t);
  /// The same with a schedule for each group, in their order. UsageError for another number of them.
  void set_lr(std::span<const optim::Schedule> of_groups, std::uint64_t t);

 private:
  void set(const std::function<const optim::Schedule&(std::size_t group)>& schedule_of, std::uint64_t t);

  torch::optim::Optimizer& optimizer_;
  std::vector<double> initial_;  ///< of each group
};

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::TorchRates;
}  // namespace lockstep
