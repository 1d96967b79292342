#pragma once

// Horovod's DistributedOptimizer around an optimizer of torch::optim.
//
//   torch::optim::SGD sgd(model->parameters(), 0.01);
//   hvd::DistributedOptimizer optimizer(sgd, {.named_parameters = model->named_parameters()});
//   hvd::broadcast_parameters(*model);
//   for (...) { optimizer.zero_grad(); loss(model, batch).backward(); optimizer.step(); }
//
// Gradients go while backward runs, from the last of the optimizer's parameters on, a group of them as soon as its last
// gradient is there and all groups before it have gone. step() sends what is left, waits until the gradients of all
// ranks are one, then steps. Each rank steps privately, as with Horovod.

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>
#include <torch/ordered_dict.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/horovod/operations.h"

namespace torch::autograd {
struct Node;
}

namespace lockstep::horovod {

struct DistributedOptimizerOptions {
  /// Names for error messages: all parameters of the optimizer or none, no name twice.
  torch::OrderedDict<std::string, at::Tensor> named_parameters = torch::OrderedDict<std::string, at::Tensor>();
  Compression compression = Compression::none;
  /// Backward passes, whose gradients add up, before step(). One more is an error.
  int backward_passes_per_step = 1;
  /// Average or Sum of gradients, or Adasum. With that each rank steps by its own gradient, and the changes are
  /// combined: weight = old + Adasum(changes), as Horovod does it. A world of one steps as ever.
  Op op = Average;
  /// Gradients are divided by it before they are compressed and added, and by size/factor afterwards. Average only.
  double gradient_predivide_factor = 1;
  /// Ranks outside step by their own gradients.
  ProcessSet process_set = {};
  /// Sparse gradients become dense, in .grad() too, before they are sent. Else they are a UsageError.
  bool sparse_as_dense = false;
  /// What goes as one operation: the parameters in so many groups of as many, in the optimizer's order; 0: about 4 MiB.
  int num_groups = 0;
  /// Or these; parameters that are in none go alone. The same on all ranks; no parameter twice.
  std::vector<std::vector<at::Tensor>> groups = {};
};

class DistributedOptimizer {
 public:
  /// The optimizer outlives this object; parameters are not added to it later. UsageError when options contradict it.
  explicit DistributedOptimizer(torch::optim::Optimizer& optimizer, DistributedOptimizerOptions options = {});
  ~DistributedOptimizer();
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  /// Makes gradients one, then steps. UsageError behind synchronize() outside of skip_synchronize(): gradients would be
  /// reduced twice (Horovod warns of it).
  void step();
  /// Makes gradients one: to clip them, say, before step(). A parameter that has none counts as zeros, and has them
  /// afterwards. With Adasum it does nothing.
  void synchronize();
  /// UsageError between backward() and step() or synchronize(), where it would lose gradients.
  void zero_grad(bool set_to_none = true);

  /// For its life step() leaves gradients as synchronize() has made them. UsageError with Adasum.
  class SkipSynchronize {
   public:
    explicit SkipSynchronize(DistributedOptimizer& optimizer) : optimizer_(optimizer) { optimizer_.skip_ = true; }
    ~SkipSynchronize() { optimizer_.skip_ = false; }
    SkipSynchronize(const SkipSynchronize&) = delete;
    SkipSynchronize& operator=(const SkipSynchronize&) = delete;

   private:
    DistributedOptimizer& optimizer_;
  };
  [[nodiscard]] SkipSynchronize skip_synchronize();

  /// Between steps.
  void set_backward_passes_per_step(int passes);
  torch::optim::Optimizer& optimizer() { return optimizer_; }
  /// Of the optimizer; so a GradScaler takes this object, behind synchronize() and with step() under
  /// skip_synchronize(). UsageError between backward() and synchronize(), while gradients are on their way.
  std::vector<torch::optim::OptimizerParamGroup>& param_groups();

 private:
  struct Passes;  ///< what the hooks on the parameters count
  struct Hook;
  using Group = std::vector<std::size_t>;  ///< of parameters
  void name_parameters();
  void make_groups();
  void count_passes();
  void send_ready();
  void send(const Group& group);
  AllreduceOptions how() const;
  void step_by_adasum();
  bool is_adasum() const { return options_.op == Op::Adasum && options_.process_set.size() > 1; }

  torch::optim::Optimizer& optimizer_;
  DistributedOptimizerOptions options_;
  Tensors parameters_;  ///< those that get gradients
  std::shared_ptr<Passes> passes_;
  std::vector<unsigned> hooks_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;  ///< kept alive: parameters hold them weakly
  std::vector<Group> groups_;                                         ///< in the order in which they go
  std::size_t next_ = 0;                                              ///< of them, in this step
  std::vector<Handle<Tensors>> sent_;                                 ///< in this step
  bool synchronized_ = false;
  bool skip_ = false;
};

}  // namespace lockstep::horovod
