#pragma once

// The exponential moving average of the weights (EMA) where an optimizer of torch::optim trains, as torchvision's
// reference trainers have it: the program says when a step is done.
//
//   lockstep::ExponentialMovingAverage average(*model, {.decay = 0.999, .interval = 8});
//   ...
//   optimizer.step();
//   average.update_parameters();
//
// With an optimizer of ours it is an array of the update: DataParallelOptions::ema.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/ema.h"

namespace torch::nn {
class Module;  // its header takes ten seconds to compile
}

namespace lockstep::parallel {

/// Of this rank: where the ranks have equal weights, as DistributedDataParallel keeps them, they have equal averages.
/// Module buffers are each rank's own, of which rank 0's are the model's. Frozen parameters are their own average.
/// Not thread-safe.
class ExponentialMovingAverage {
 public:
  /// It begins as the module's parameters and buffers, in as much memory, of their dtypes. `module` keeps its tensors
  /// as long as this is used: its dtype stays. UsageError when an option is out of range.
  explicit ExponentialMovingAverage(const torch::nn::Module& module, EmaOptions options = {});
  ExponentialMovingAverage(const ExponentialMovingAverage&) = delete;  // use() gives out a way back to this one
  ExponentialMovingAverage& operator=(const ExponentialMovingAverage&) = delete;

  /// Behind each step. Whether the weights are taken in, the options say, by how often this was called.
  /// UsageError while use() shows the average.
  void update_parameters();
  std::uint64_t updates() const { return updates_; }

  /// By PyTorch's names, parameters and buffers; they share memory with the average.
  std::map<std::string, at::Tensor> state_dict() const;
  /// Goes on from what state_dict() and updates() were. UsageError naming the first tensor that is missing or of
  /// another shape; then nothing has changed.
  void load_state_dict(const std::map<std::string, at::Tensor>& averages, std::uint64_t updates);

  /// Whether an object that use() has returned lives.
  bool is_shown() const { return shown_; }
  /// While the returned object lives, the module's parameters and buffers are copies of the averaged ones, to be
  /// evaluated; what is done to them is dropped. It must not outlive this. UsageError when there is such an object
  /// already.
  [[nodiscard("the module shows averaged weights only while the returned object lives")]] std::shared_ptr<void> use();

 private:
  struct Averaged {
    at::Tensor own;  ///< the module's
    at::Tensor average;
    bool is_buffer = false;
    bool is_trained = false;  ///< wants a gradient, or has wanted one
  };
  void add(const std::string& name, const at::Tensor& own, bool is_buffer);

  EmaOptions options_;
  std::vector<Averaged> tensors_;                           ///< each once, whatever its names
  std::vector<std::pair<std::string, std::size_t>> names_;  ///< of which tensor
  std::uint64_t updates_ = 0;
  bool shown_ = false;
};

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::ExponentialMovingAverage;
}  // namespace lockstep
