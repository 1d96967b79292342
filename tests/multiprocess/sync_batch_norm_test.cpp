// SyncBatchNorm within DistributedDataParallel, on both paths, against one process that trains on all samples.

#include "lockstep/parallel/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cstddef>
#include <string>
#include <utility>

#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/usage_error.h"

namespace lockstep {
namespace {

using support::RankKind;
using support::run_ranks;
using support::SharedText;
using ::testing::HasSubstr;

constexpr int kSynchronizedSteps = 4;
constexpr int kRanks = 3;

struct NormNetImpl : torch::nn::Module {
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 6, 3).bias(false)));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(6));
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(6, 4));
  torch::nn::BatchNorm1d rows = register_module("rows", torch::nn::BatchNorm1d(4));
  at::Tensor forward(const at::Tensor& x) { return rows(fc(norm(conv(x)).relu_().mean({2, 3}))); }
};
TORCH_MODULE(NormNet);

NormNet norm_net() {
  torch::manual_seed(0);
  return {};
}

// The samples of all ranks.
support::SmallBatch samples(int step) {
  at::Generator generator = at::detail::createCPUGenerator(std::uint64_t(step));
  return {at::randn({kRanks * 4, 2, 7, 7}, generator), at::randint(0, 4, {kRanks * 4}, generator, at::kLong)};
}

support::SmallBatch part_of(const support::SmallBatch& all, int rank, int ranks = kRanks) {
  const std::int64_t each = all.data.size(0) / ranks;
  return {all.data.narrow(0, rank * each, each), all.target.narrow(0, rank * each, each)};
}

template <class Forward>
at::Tensor loss_of(Forward& forward, const support::SmallBatch& batch) {
  return torch::nn::functional::cross_entropy(forward(batch.data), batch.target);
}

void expect_trained_like_one(const NormNet& found) {
  NormNet whole = norm_net();
  torch::optim::SGD optimizer(whole->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < kSynchronizedSteps; ++step) {
    optimizer.zero_grad();
    loss_of(whole, samples(step)).backward();
    optimizer.step();
  }
  const auto wanted = whole->named_parameters();
  for (const auto& item : found->named_parameters())
    EXPECT_TRUE(torch::allclose(item.value(), wanted[item.key()], 1e-4, 1e-5)) << item.key();
  const auto statistics = whole->named_buffers();
  for (const auto& item : found->named_buffers())
    EXPECT_TRUE(torch::allclose(item.value(), statistics[item.key()], 1e-4, 1e-5)) << item.key();
}

std::string trained_fused(const std::shared_ptr<comm::Group>& group, DataParallelOptions options = {}) {
  const NormNet model = convert_sync_batchnorm(norm_net(), group);
  DistributedDataParallel ddp(model, group, options);
  optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < kSynchronizedSteps; ++step) {
    loss_of(ddp, part_of(samples(step), group->rank())).backward();
    const auto of_ranks = group->all_gather(model->norm->running_var);
    EXPECT_TRUE(torch::equal(of_ranks.front(), of_ranks.back())) << "the committed statistics are everybody's";
    optimizer.step();
  }
  if (options.amp == Amp::none) expect_trained_like_one(model);
  return ddp.state().hash();
}

TEST(SyncBatchNormInDdp, FusedPathTrainsLikeOneProcessWithTheSameBitsInEveryRun) {
  for (const DataParallelOptions& options :
       {DataParallelOptions{}, DataParallelOptions{.channels_last = true}, DataParallelOptions{.amp = Amp::bf16}}) {
    SharedText first, second;
    for (SharedText* const text : {&first, &second})
      run_ranks(RankKind::processes, kRanks, [&](auto group) {
        const std::string hash = trained_fused(group, options);
        if (group->rank() == 1) text->set(hash);
      });
    EXPECT_EQ(first.get(), second.get());
    EXPECT_NE(first.get(), "");
  }
}

// Its layers and the waves send at the same time, each over a wire of its own.
TEST(SyncBatchNormInDdp, HasTheSameBitsBesideWaves) {
  SharedText whole, waves;
  const std::pair<SharedText*, std::size_t> runs[] = {{&whole, 0}, {&waves, 1}};
  for (const auto& [text, bytes] : runs)
    support::run_nodes({2, 1}, [text = text, bytes = bytes](auto group) {
      const std::string hash = trained_fused(group, {.overlap_bytes = bytes});
      if (group->rank() == 1) text->set(hash);
    });
  EXPECT_EQ(waves.get(), whole.get());
  EXPECT_NE(whole.get(), "");
}

// Gradients are averaged over `group`, statistics are those of the ranks of `normed`, a part of it.
void train_classic(const std::shared_ptr<comm::Group>& group, const std::shared_ptr<comm::Group>& normed) {
  const NormNet model = convert_sync_batchnorm(norm_net(), normed);
  DistributedDataParallel ddp(model, group);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < kSynchronizedSteps; ++step) {
    optimizer.zero_grad();
    loss_of(ddp, part_of(samples(step), normed->rank(), normed->size())).backward();
    optimizer.step();
  }
  expect_trained_like_one(model);
}

TEST(SyncBatchNormInDdp, ClassicPathTrainsLikeOneProcess) {
  run_ranks(RankKind::processes, kRanks, [](auto group) { train_classic(group, group); });
}

// Both halves see the same samples, so the mean of their gradients is that of either.
TEST(SyncBatchNormInDdp, OverPartsOfTheRanks) {
  run_ranks(RankKind::processes, 4, [](auto group) {
    const auto first = group->new_group({0, 1}), second = group->new_group({2, 3});
    train_classic(group, first ? first : second);
  });
}

TEST(SyncBatchNormInDdp, OverPartsOfTheRanksOfSeveralNodes) {
  support::run_nodes({3, 1}, [](auto group) {
    const auto first = group->new_group({0, 1}), second = group->new_group({2, 3});
    train_classic(group, first ? first : second);
    if (const auto three = group->new_group({1, 2, 3})) trained_fused(three);
  });
}

TEST(SyncBatchNormInDdp, OverSeveralNodes) {
  support::run_nodes({2, 1}, [](auto group) {
    train_classic(group, group);
    trained_fused(group);
  });
}

TEST(SyncBatchNormInDdp, NeedsOneShardPerRank) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    const std::string wanted =
        "data parallel: 4 shards on 2 ranks, but SyncBatchNorm ('norm') needs one shard per rank";
    const NormNet model = convert_sync_batchnorm(norm_net(), group);
    EXPECT_THAT(testing::usage_error([&] { DistributedDataParallel(model, group, {.shards = 4}); }), HasSubstr(wanted));
    const NormNet later = norm_net();
    DistributedDataParallel ddp(later, group, {.shards = 4});
    optim::SGD optimizer(ddp, {.lr = 0.1});
    convert_sync_batchnorm(later, group);
    EXPECT_THAT(testing::usage_error([&] {
                  for (auto& shard : ddp.shards(part_of(samples(0), 0))) ddp(shard.data);
                }),
                HasSubstr(wanted));
  });
}

}  // namespace
}  // namespace lockstep
