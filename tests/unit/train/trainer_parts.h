#pragma once

// What tests of a Trainer train.

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>

#include "lockstep/data/tensor_batches.h"
#include "lockstep/optim.h"
#include "lockstep/train/trainer.h"
#include "tests/support/ranks.h"

namespace lockstep::train {

using Group = std::shared_ptr<comm::Group>;

// A model, a set of 6 samples in batches of 2, and an optimizer that is made last.
struct Parts {
  explicit Parts(const Group& group, bool zero1 = false) : ddp(net(), group, {.shards = 2, .zero1 = zero1}) {}

  static std::shared_ptr<torch::nn::LinearImpl> net() {
    auto net = std::make_shared<torch::nn::LinearImpl>(2, 1);
    const at::NoGradGuard no_grad;  // ranks that are threads have one generator between them
    net->weight.fill_(0.25);
    net->bias.zero_();
    return net;
  }
  at::Tensor loss(const Shard& shard) { return ddp(shard.data).sub(shard.target).square().mean(); }
  TrainerEnd run(Trainer& trainer) {
    optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
    return trainer.run(optimizer, [this](const Shard& shard) { return loss(shard); });
  }

  std::shared_ptr<const data::Batches> set = data::tensors(at::arange(12.0F).view({6, 2}).div(12), at::ones({6, 1}));
  parallel::DistributedDataParallel<std::shared_ptr<torch::nn::LinearImpl>> ddp;
  data::DataLoader loader{set, ddp.part(), {.global_batch_size = 2, .shuffle = true}};
};

// Of two epochs.
inline std::string weights_of_own_loop() {
  std::string hash;
  support::run_ranks(support::RankKind::single, 1, [&](const Group& group) {
    Parts parts(group);
    optim::SGD optimizer(parts.ddp, {.lr = 0.1, .momentum = 0.9});
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      parts.loader.set_epoch(epoch);
      for (auto& batch : parts.loader) {
        for (auto& shard : parts.ddp.shards(batch)) parts.loss(shard).backward();
        optimizer.step();
      }
    }
    hash = parts.ddp.weights_hash();
  });
  return hash;
}

}  // namespace lockstep::train
