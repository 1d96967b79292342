#pragma once

// A small training job for engine tests: a net with BatchNorm and dropout, data that are a
// function of (step, shard), a few steps. Fast enough to run hundreds of times.

#include <torch/nn.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

namespace lockstep::support {

struct RankOptions;  // ranks.h

struct SmallNetImpl : torch::nn::Module {
  /// `ballast`: elements of a module buffer that does nothing but take time to move.
  explicit SmallNetImpl(std::int64_t ballast = 0)
      : fc1(register_module("fc1", torch::nn::Linear(20, 300))),
        bn(register_module("bn", torch::nn::BatchNorm1d(300))),
        dropout(register_module("dropout", torch::nn::Dropout(0.3))),
        fc2(register_module("fc2", torch::nn::Linear(300, 90))),
        fc3(register_module("fc3", torch::nn::Linear(90, 5))) {
    register_buffer("ballast", torch::zeros({ballast}));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor features = torch::relu(fc2(dropout(torch::relu(bn(fc1(x))))));
    return fc3(only_head ? features.detach() : features);
  }
  torch::nn::Linear fc1;
  torch::nn::BatchNorm1d bn;
  torch::nn::Dropout dropout;
  torch::nn::Linear fc2, fc3;
  bool only_head = false;  ///< the other layers stay without gradients
};
TORCH_MODULE(SmallNet);

struct SmallBatch {
  at::Tensor data;
  at::Tensor target;
};

/// The samples of shards [first, last) at a step.
SmallBatch small_batch(std::uint64_t step, parallel::ShardSpan shards, int samples_per_shard = 6);

using OptimizerMaker = std::function<std::unique_ptr<optim::Optimizer>(optim::Target& target)>;

/// Makes one of our optimizers with these options.
template <class Options>
OptimizerMaker maker(Options options) {
  return [options](optim::Target& target) { return std::make_unique<optim::FusedOptimizer<Options>>(target, options); };
}
/// The same with parameter groups.
template <class Options>
OptimizerMaker maker(std::vector<optim::ParamGroup<Options>> groups, Options defaults) {
  return
      [=](optim::Target& target) { return std::make_unique<optim::FusedOptimizer<Options>>(target, groups, defaults); };
}

inline OptimizerMaker small_sgd() { return maker(optim::SGDOptions{.lr = 0.05, .momentum = 0.9}); }
inline OptimizerMaker small_adam() { return maker(optim::AdamOptions{.lr = 0.01}); }

struct SmallJob {
  int shards = 4;
  std::uint64_t steps = 6;
  OptimizerMaker optimizer = small_sgd();
  std::int64_t ballast = 0;
  Amp amp = Amp::none;
  at::Device device = at::kCPU;  ///< of the model
  bool holdable = false;         ///< its state has a third buffer, as that of a job that saves
  std::optional<parallel::EmaOptions> ema = {};
  std::uint64_t verify_every = 0;                    ///< DataParallelOptions::verify_replicas_every
  std::size_t overlap_bytes = std::size_t(2) << 20;  ///< the option of that name
  parallel::Reduction reduction = parallel::Reduction::exact;
  parallel::Compression compression = parallel::Compression::none;
  bool zero1 = false, zero1_copy = false;
  /// Every step has two passes, clips, scales its loss, which overflows in each fifth step in one shard, sets each
  /// group's rate by a plateau, and uses only the head in each third step, in all shards but the first, in each sixth
  /// in that, too.
  bool all_options = false;
  /// Called on every rank with the engine before the first and after each step.
  std::function<void(parallel::Engine&)> after_step = [](parallel::Engine&) {};
};

/// Trains from the committed step to `steps`; returns the weights hash.
std::string run_small_job(const std::shared_ptr<comm::Group>& group, const SmallJob& job);

/// A bit of this node's committed state, unknown to other nodes: in the first weight of a parameter, or in what an
/// array of the optimizer's has for it.
void flip_bit(parallel::Engine& engine, const std::string& parameter, int array = -1);

/// run_small_job() on `ranks` ranks, processes unless it is one; expects them to agree.
std::string hash_of(int ranks, const SmallJob& job);

/// The same on nodes with so many ranks each.
std::string nodes_hash(const std::vector<int>& ranks_per_node, const SmallJob& job);
/// And with these options of theirs.
std::string nodes_hash(const std::vector<int>& ranks_per_node, const SmallJob& job, const RankOptions& options);

/// What forked ranks tell the test: text in memory they share, at most 4095 bytes.
class SharedText {
 public:
  SharedText();
  ~SharedText();
  SharedText(const SharedText&) = delete;
  SharedText& operator=(const SharedText&) = delete;
  void set(const std::string& text);
  std::string get() const { return text_; }

 private:
  char* text_;
};

}  // namespace lockstep::support
