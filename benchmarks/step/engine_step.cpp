#include "benchmarks/step/engine_step.h"

#include <torch/nn/module.h>

#include "lockstep/base/segment.h"
#include "lockstep/optim/store_choice.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep::bench {
namespace {

// Its loss is linear in the parameters, so that their gradients are the tensors handed in.
struct LinearLoss : torch::nn::Module {
  explicit LinearLoss(const Shapes& shapes) {
    for (const auto& [name, sizes] : shapes)
      parameters_.push_back(register_parameter(name, torch::randn(sizes) * 0.05));
  }
  at::Tensor forward(const Gradients& gradients) {
    std::vector<at::Tensor> terms;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      terms.push_back(torch::dot(parameters_[i].view(-1), gradients[i].view(-1)));
    return torch::stack(terms).sum();
  }
  const at::Tensor& first() const { return parameters_.front(); }

 private:
  std::vector<at::Tensor> parameters_;
};

class EngineStep final : public Contender {
 public:
  EngineStep(const std::shared_ptr<comm::Group>& group, const Shapes& shapes, const EngineOptimizer& optimizer,
             Pages pages)
      : pages_(pages),
        bytes_(optimizer.bytes_per_weight * double(weights_of(shapes))),
        module_(std::make_shared<LinearLoss>(shapes)),
        ddp_(module_, group) {
    const PagesScope scope(pages);
    optimizer_ = optimizer.make(ddp_);
  }
  std::string name() const override { return std::string("lockstep step(), ") + to_string(pages_); }
  std::string kind() const override { return "ours"; }
  double bytes() const override { return bytes_; }
  std::string page_size() const override { return base::page_size(module_->first().const_data_ptr()); }
  void prepare(const Gradients& gradients) override {
    for (; steps_to_settle_ > 0; --steps_to_settle_) {
      ddp_(gradients).backward();
      optimizer_->step();
    }
    ddp_(gradients).backward();
  }
  void run() override { optimizer_->step(); }

 private:
  int steps_to_settle_ = optim::StoreChoice::kFirstTrial;  ///< before the first turn: a job has thousands more
  Pages pages_;
  double bytes_;
  std::shared_ptr<LinearLoss> module_;
  DistributedDataParallel<std::shared_ptr<LinearLoss>> ddp_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

}  // namespace

EngineOptimizer engine_optimizer(OptimizerKind kind, int shards) {
  return {[kind](optim::Target& target) -> std::unique_ptr<optim::Optimizer> {
            if (kind == OptimizerKind::sgd) return std::make_unique<optim::SGD>(target, kSGD);
            return std::make_unique<optim::Adam>(target, kAdam);
          },
          bytes_per_weight(kind, shards)};
}

std::unique_ptr<Contender> make_engine_step(const std::shared_ptr<comm::Group>& group, const Shapes& shapes,
                                            const EngineOptimizer& optimizer, Pages pages) {
  return std::make_unique<EngineStep>(group, shapes, optimizer, pages);
}

}  // namespace lockstep::bench
