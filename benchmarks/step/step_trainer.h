#pragma once

// Whole training steps as a user of the library writes them.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "benchmarks/step/workload.h"
#include "lockstep/comm/group.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep::bench {

/// How it is trained; the defaults are the library's.
struct Way {
  Amp amp = Amp::none;
  bool channels_last = false;
  bool sync_bn = false;
  bool fuse = false;
  Compression compression = Compression::none;  ///< of what goes to other nodes
};

/// Seconds of the monotonic clock, which is one for all processes of a machine.
double monotonic_seconds();

class StepTrainer {
 public:
  /// Collective.
  StepTrainer(const Workload& workload, const std::shared_ptr<comm::Group>& group, Way way);

  /// The time of the start and of each step's end. Collective: as many steps on each rank.
  std::vector<double> turn(int steps);

  /// The halves of a step.
  void forward_and_backward();
  void update() { optimizer_->step(); }

  /// Weights and biases of the model.
  std::int64_t weights() const;
  std::string page_size() const { return ddp_.debug().page_size(); }

 private:
  at::Tensor next_data();

  std::shared_ptr<models::ImageModel> model_;
  DistributedDataParallel<std::shared_ptr<models::ImageModel>> ddp_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Way way_;
  std::vector<at::Tensor> data_;
  std::vector<at::Tensor> target_;
  std::size_t steps_ = 0;
};

}  // namespace lockstep::bench
