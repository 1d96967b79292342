#pragma once

// A few steps of a small net on the classic path, with a communication hook or without.

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/lockstep.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"

namespace lockstep::parallel {

using Groups = std::shared_ptr<comm::Group>;

// Weight (4, 6) and bias, then (3, 4): in buckets of one, from the last.
inline torch::nn::Sequential two_layers() {
  torch::nn::Sequential net(torch::nn::Linear(6, 4), torch::nn::Tanh(), torch::nn::Linear(4, 3));
  at::Generator generator = at::detail::createCPUGenerator(5);  // torch's own is everybody's, in threads
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : net->parameters()) parameter.copy_(at::randn(parameter.sizes(), generator));
  return net;
}

inline at::Tensor batch_of(int rank, int step) {
  return at::randn({5, 6}, at::detail::createCPUGenerator(std::uint64_t(100 * step + rank)));
}

// Gradients of a few steps, with the weights moving, one after the other.
inline std::vector<at::Tensor> gradients_with(const Groups& group, const std::function<void(Engine&)>& hook,
                                              int steps = 3, int first = 0) {
  torch::nn::Sequential net = two_layers();
  DistributedDataParallel ddp(net, group);
  hook(ddp);
  std::vector<at::Tensor> seen;
  for (int step = first; step < first + steps; ++step) {
    net->zero_grad();
    ddp(batch_of(group->rank(), step)).square().mean().backward();
    for (const at::Tensor& parameter : net->parameters()) seen.push_back(parameter.grad().clone());
  }
  return seen;
}

inline void expect_close(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& wanted, double relative) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_LE((found[i] - wanted[i]).abs().max().item<double>(), relative * wanted[i].abs().max().item<double>()) << i;
}

/// What rank 0 of a job in processes tells: a hash, to compare with that of another run.
inline std::string told_by_rank_0(int ranks, const std::function<std::string(Groups)>& job) {
  support::SharedText told;
  support::run_ranks(support::RankKind::processes, ranks, [&](Groups group) {
    const std::string mine = job(group);
    if (group->rank() == 0) told.set(mine);
  });
  return told.get();
}

inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

inline constexpr auto kNoHook = [](Engine&) {};

}  // namespace lockstep::parallel
