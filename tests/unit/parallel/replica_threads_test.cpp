// What the threads of replicas take over from the caller's.

#include "lockstep/parallel/replica_threads.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <functional>
#include <utility>
#include <vector>

#include "lockstep/amp/autocast.h"
#include "lockstep/parallel/data_parallel.h"

namespace lockstep::parallel {
namespace {

// What a replica finds around it.
struct AskingImpl : torch::nn::Cloneable<AskingImpl> {
  explicit AskingImpl(std::function<int()> what) : what(std::move(what)) {}
  void reset() override {}
  at::Tensor forward(const at::Tensor& x) { return at::full({x.size(0)}, what(), at::kLong); }
  std::function<int()> what;
};
TORCH_MODULE(Asking);

const std::vector<at::Device> kTwo{at::kCPU, at::kCPU};

TEST(DataParallel, ReplicasKeepCastsOfAutocastAsTheCallerDoes) {
  DataParallel model(Asking(at::autocast::is_autocast_cache_enabled), kTwo);
  for (const bool keeps : {false, true, false}) {
    const amp::Autocast autocast(amp::AutocastOptions{.cache_enabled = keeps});
    EXPECT_TRUE(torch::equal(model(at::zeros({2})), at::full({2}, int(keeps), at::kLong))) << keeps;
  }
}

// OpenMP has a number for each thread, and the replicas' threads had one of their own.
TEST(DataParallel, ReplicasComputeWithAsManyThreadsAsTheCaller) {
  const int before = at::get_num_threads();
  DataParallel model(Asking(at::get_num_threads), kTwo);
  for (const int threads : {2, 1, 3}) {
    at::set_num_threads(threads);
    EXPECT_TRUE(torch::equal(model(at::zeros({2})), at::full({2}, threads, at::kLong))) << threads;
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace lockstep::parallel
