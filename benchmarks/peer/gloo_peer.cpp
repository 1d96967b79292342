#define USE_C10D_GLOO
#include "benchmarks/peer/gloo_peer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_sgd.h>
#include <sys/mman.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "benchmarks/support/pages.h"
#include "lockstep/base/error.h"
#include "lockstep/base/segment.h"

namespace lockstep::bench {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

c10::intrusive_ptr<c10d::ProcessGroupGloo> connect(const GlooPlace& place) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  auto store = c10::make_intrusive<c10d::FileStore>(place.store_file, place.ranks);
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, place.rank, place.ranks, options);
}

// Zeroed memory: libtorch's own allocation, or our own with huge pages.
at::Tensor allocate(std::int64_t elements, Pages pages) {
  if (pages == Pages::small) return at::zeros({elements});
  const std::size_t bytes = std::size_t(elements) * sizeof(float);
  constexpr std::size_t edge = std::size_t(2) << 20;
  void* memory = nullptr;
  if (posix_memalign(&memory, edge, (bytes + edge - 1) / edge * edge) != 0) throw Error("benchmark: out of memory");
  madvise(memory, bytes, MADV_HUGEPAGE);
  return at::from_blob(memory, {elements}, std::free, at::kFloat).zero_();
}

// Tensors of the given shapes, one after the other in flat memory.
struct Flat {
  Flat(const Shapes& shapes, std::size_t first, std::size_t last, Pages pages) {
    const Shapes mine(shapes.begin() + std::ptrdiff_t(first), shapes.begin() + std::ptrdiff_t(last));
    all = allocate(weights_of(mine), pages);
    std::int64_t offset = 0;
    for (const auto& shape : mine) {
      const std::int64_t elements = weights_of({shape});
      tensors.push_back(all.narrow(0, offset, elements).view(shape.second));
      offset += elements;
    }
  }
  at::Tensor all;
  std::vector<at::Tensor> tensors;
};

// DDP's buckets: from the last parameter to the first, as backward finishes them.
std::vector<std::pair<std::size_t, std::size_t>> plan_buckets(const Shapes& shapes) {
  std::vector<std::pair<std::size_t, std::size_t>> buckets;
  std::int64_t limit = std::int64_t(1) << 20;
  std::size_t last = shapes.size();
  std::int64_t bytes = 0;
  for (std::size_t i = shapes.size(); i-- > 0;) {
    bytes += weights_of({shapes[i]}) * std::int64_t(sizeof(float));
    if (bytes < limit && i > 0) continue;
    buckets.emplace_back(i, last);
    last = i;
    bytes = 0;
    limit = std::int64_t(25) << 20;
  }
  return buckets;
}

// What the peers of a rank share: connection, parameters, gradient buckets.
struct Model {
  Model(c10::intrusive_ptr<c10d::ProcessGroupGloo> connection, const Shapes& shapes, Pages page_kind)
      : gloo(std::move(connection)), pages(page_kind), gradients(shapes.size()) {
    Flat weights(shapes, 0, shapes.size(), pages);
    weights.all.normal_(0, 0.05);
    parameters = weights.tensors;
    for (const auto& [first, last] : plan_buckets(shapes)) {
      buckets.emplace_back(shapes, first, last, pages);
      std::copy(buckets.back().tensors.begin(), buckets.back().tensors.end(),
                gradients.begin() + std::ptrdiff_t(first));
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].requires_grad_(true);
      parameters[i].mutable_grad() = gradients[i];
    }
  }

  void reduce() {
    std::vector<Work> works;
    for (Flat& bucket : buckets) {
      bucket.all.div_(gloo->getSize());
      std::vector<at::Tensor> tensors{bucket.all};
      works.push_back(gloo->allreduce(tensors));
    }
    for (const Work& work : works) work->wait();
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  Pages pages;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<Flat> buckets;
};

struct Step {
  virtual ~Step() = default;
  virtual const char* name() const = 0;
  virtual const char* kind() const = 0;
  virtual void step() = 0;
};

struct DefaultStep final : Step {
  DefaultStep(const Model& model, OptimizerKind kind) {
    if (kind == OptimizerKind::sgd)
      optimizer = std::make_unique<torch::optim::SGD>(model.parameters,
                                                      torch::optim::SGDOptions(kSGD.lr).momentum(kSGD.momentum));
    else
      optimizer = std::make_unique<torch::optim::Adam>(model.parameters, torch::optim::AdamOptions(kAdam.lr));
  }
  const char* name() const override { return "torch::optim"; }
  const char* kind() const override { return "installed"; }
  void step() override { optimizer->step(); }
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

struct FusedStep final : Step {
  FusedStep(const Model& model, const Shapes& shapes, OptimizerKind kind)
      : optimizer(kind), parameters(model.parameters), gradients(model.gradients) {
    for (int array = 0; array < state_arrays(kind); ++array)
      state.push_back(Flat(shapes, 0, shapes.size(), model.pages).tensors);
    for (std::size_t i = 0; i < shapes.size(); ++i) steps.push_back(at::zeros({}));
  }
  const char* name() const override { return "fused operator"; }
  const char* kind() const override { return "tuned"; }
  void step() override {
    const torch::NoGradGuard no_grad;
    if (optimizer == OptimizerKind::sgd) {
      at::_fused_sgd_(parameters, gradients, state[0], /*weight_decay=*/0, kSGD.momentum, kSGD.lr, /*dampening=*/0,
                      /*nesterov=*/false, /*maximize=*/false, std::exchange(first, false));
    } else {
      at::_foreach_add_(steps, 1);
      at::_fused_adam_(parameters, gradients, state[0], state[1], {}, steps, kAdam.lr, kAdam.betas[0], kAdam.betas[1],
                       kAdam.weight_decay, kAdam.eps, /*amsgrad=*/false, /*maximize=*/false);
    }
  }
  OptimizerKind optimizer;
  std::vector<at::Tensor> parameters, gradients, steps;
  std::vector<std::vector<at::Tensor>> state;
  bool first = true;
};

class GlooPeer final : public Contender {
 public:
  GlooPeer(std::shared_ptr<Model> model, std::shared_ptr<Step> step, int threads)
      : model_(std::move(model)), step_(std::move(step)), threads_(threads) {}
  std::string name() const override {
    return std::string("Gloo + ") + step_->name() + ", " + std::to_string(threads_) +
           (threads_ == 1 ? " thread, " : " threads, ") + to_string(model_->pages);
  }
  std::string kind() const override { return step_->kind(); }
  std::string page_size() const override { return model_->pages == Pages::huge ? "advised" : "4 KiB"; }
  void prepare(const Gradients& gradients) override {
    for (std::size_t i = 0; i < gradients.size(); ++i) model_->gradients[i].copy_(gradients[i]);
    at::set_num_threads(threads_);
  }
  void run() override {
    model_->reduce();
    step_->step();
    at::set_num_threads(1);
  }

 private:
  std::shared_ptr<Model> model_;
  std::shared_ptr<Step> step_;
  int threads_;
};

}  // namespace

std::vector<std::unique_ptr<Contender>> make_gloo_peers(const GlooPlace& place, const Shapes& shapes,
                                                        OptimizerKind kind, int threads) {
  const auto gloo = connect(place);
  const auto small = std::make_shared<Model>(gloo, shapes, Pages::small);
  const auto huge = std::make_shared<Model>(gloo, shapes, Pages::huge);
  const auto loop = std::make_shared<DefaultStep>(*small, kind);
  const auto fused = std::make_shared<FusedStep>(*small, shapes, kind);
  const auto huge_fused = std::make_shared<FusedStep>(*huge, shapes, kind);
  std::vector<std::unique_ptr<Contender>> peers;
  for (int count = 1; count <= threads; ++count) {
    peers.push_back(std::make_unique<GlooPeer>(small, loop, count));
    peers.push_back(std::make_unique<GlooPeer>(small, fused, count));
  }
  peers.push_back(std::make_unique<GlooPeer>(huge, huge_fused, 1));
  return peers;
}

}  // namespace lockstep::bench
