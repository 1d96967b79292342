#pragma once

// Two models of one program on one group: a generator and a discriminator, each with an optimizer of its own.

#include <torch/nn.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/lockstep.h"

namespace lockstep::support {

inline constexpr int kGanShards = 6;

inline at::Tensor noise_of(std::uint64_t step, std::int64_t samples) {
  torch::manual_seed(1'000 + step);
  return torch::randn({samples, 4});
}
inline at::Tensor real_of(std::uint64_t step, std::int64_t samples) {
  torch::manual_seed(2'000 + step);
  return torch::randn({samples, 8}) * 0.5 + 1;
}

inline torch::nn::Sequential generator() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(4, 32), torch::nn::BatchNorm1d(32), torch::nn::ReLU(),
                               torch::nn::Linear(32, 8));
}
inline torch::nn::Sequential discriminator() {
  torch::manual_seed(2);
  return torch::nn::Sequential(torch::nn::Linear(8, 32), torch::nn::LeakyReLU(), torch::nn::Dropout(0.2),
                               torch::nn::Linear(32, 1));
}

inline at::Tensor loss_of(const at::Tensor& logits, bool real) {
  return torch::nn::functional::binary_cross_entropy_with_logits(logits, torch::full_like(logits, real ? 1 : 0));
}

/// Trained on data that are a function of the step; its bits are those of any number of ranks.
struct Gan {
  explicit Gan(const std::shared_ptr<comm::Group>& group, bool together = true,
               std::size_t overlap_bytes = DataParallelOptions().overlap_bytes)
      : d(discriminator(), group, {.name = "d", .shards = kGanShards, .overlap_bytes = overlap_bytes}),
        g(generator(), group, {.name = "g", .shards = kGanShards, .overlap_bytes = overlap_bytes}),
        d_optimizer(d, {.lr = 0.01}),
        g_optimizer(g, {.lr = 0.02, .momentum = 0.9}) {
    if (together) commit_together(d, g);
  }

  // Fakes of this rank's shards, of 4 samples each, by which first the one and then the other is trained.
  void train_d(std::uint64_t step) {
    for (auto& shard : parallel::Shards(d, part(real_of(step, 4 * kGanShards)), {})) {
      g.begin_shard(shard.index);
      const at::Tensor fake = g(noise(step, shard.index)).detach();
      (loss_of(d(shard.data), true) + loss_of(d(fake), false)).backward();
    }
    d_optimizer.step();
  }
  void train_g(std::uint64_t step) {
    g_optimizer.zero_grad();
    for (auto& shard : parallel::Shards(g, part(noise_of(step, 4 * kGanShards)), {})) {
      d.begin_shard(shard.index);
      loss_of(d(g(shard.data)), true).backward();
    }
    g_optimizer.step();
    d_optimizer.zero_grad();  // of what went through it
  }
  void train(std::uint64_t step) {
    train_d(step);
    train_g(step);
  }

  at::Tensor part(const at::Tensor& all) {
    const parallel::ShardSpan span = d.local_shards();
    return all.slice(0, 4 * span.first, 4 * span.last);
  }
  static at::Tensor noise(std::uint64_t step, int shard) {
    return noise_of(step, 4 * kGanShards).slice(0, 4 * shard, 4 * (shard + 1));
  }
  /// Of all that is committed of both.
  std::string hash() { return d.state().hash() + g.state().hash(); }

  DistributedDataParallel<torch::nn::Sequential> d, g;
  optim::Adam d_optimizer;
  optim::SGD g_optimizer;
};

}  // namespace lockstep::support
