// A ledger of sample ids: an epoch that is stopped, saved and resumed with other numbers of ranks.

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <thread>

#include "lockstep/data/loader.h"
#include "lockstep/data/samplers/distributed.h"
#include "lockstep/data/samplers/random.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using Indices = std::vector<std::int64_t>;
using MakeSampler = std::function<DistributedSampler(int ranks, int rank)>;

// A batch that consists of the numbers of its samples.
Batch ids(const Indices& indices) {
  Batch batch{{}, at::empty({std::int64_t(indices.size())}, at::kLong)};
  std::ranges::copy(indices, batch.target.mutable_data_ptr<std::int64_t>());
  return batch;
}

// Ranks that train until they are stopped after some steps, each with a loader that works ahead.
struct Leg {
  int ranks = 1;
  std::int64_t batch_size = 1;
  std::int64_t steps = 1'000'000;  // fewer when the epoch ends before
};

struct Outcome {
  Indices ledger;  // what the ranks have seen: step by step, and within a step entry by entry in turn
  std::string state;
};

struct Rank {
  std::vector<Indices> batches;
  std::string state;
};

Rank run_rank(DistributedSampler sampler, const std::string& state, const Leg& part) {
  if (!state.empty()) sampler.restore(sampler_state(state));
  const auto plan = std::make_shared<const std::vector<Indices>>(cut_into_batches(sampler.indices(), part.batch_size));
  Loader loader([plan](std::int64_t number) { return ids((*plan)[std::size_t(number)]); }, 0,
                std::int64_t(plan->size()), {.workers = 2, .prefetch = 5});
  Rank rank;
  while (loader.position() < part.steps) {
    const auto batch = loader.next();
    if (!batch) break;
    const std::int64_t* first = batch->target.const_data_ptr<std::int64_t>();
    rank.batches.emplace_back(first, first + batch->target.numel());
  }
  const std::int64_t taken = std::min(loader.state().position * part.batch_size, sampler.num_samples());
  rank.state = to_json(sampler.state(taken));
  return rank;
}

Outcome run(const MakeSampler& make, const std::string& state, const Leg& part) {
  std::vector<Rank> ranks(std::size_t(part.ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < part.ranks; ++rank) {
    threads.emplace_back([&, rank] { ranks[std::size_t(rank)] = run_rank(make(part.ranks, rank), state, part); });
  }
  for (std::thread& thread : threads) thread.join();
  Outcome outcome{.ledger = {}, .state = ranks[0].state};
  for (std::size_t step = 0; step < ranks[0].batches.size(); ++step) {
    for (std::size_t entry = 0; entry < ranks[0].batches[step].size(); ++entry) {
      for (const Rank& rank : ranks) outcome.ledger.push_back(rank.batches.at(step).at(entry));
    }
  }
  for (const Rank& rank : ranks) EXPECT_EQ(rank.state, outcome.state) << "ranks disagree";
  return outcome;
}

// An epoch in parts: what was seen in it, and the state behind it.
Outcome epoch_in(const std::vector<Leg>& parts, const MakeSampler& make, std::string state = {}) {
  Outcome all{.ledger = {}, .state = std::move(state)};
  for (const Leg& part : parts) {
    const Outcome outcome = run(make, all.state, part);
    all.ledger.insert(all.ledger.end(), outcome.ledger.begin(), outcome.ledger.end());
    all.state = outcome.state;
  }
  return all;
}

constexpr std::int64_t kSize = 1003;

MakeSampler plain(bool drop_last = false, std::uint64_t epoch = 0, std::uint64_t seed = 9) {
  return [=](int ranks, int rank) {
    DistributedSampler sampler(kSize, ranks, rank, {.seed = seed, .drop_last = drop_last});
    sampler.set_epoch(epoch);
    return sampler;
  };
}

// However the epoch is cut, the ranks together walk along its one order.
const std::vector<std::vector<Leg>> kCuts = {
    {{.ranks = 4, .batch_size = 8, .steps = 11}, {.ranks = 3, .batch_size = 8}},
    {{.ranks = 4, .batch_size = 8, .steps = 11}, {.ranks = 1, .batch_size = 32}},
    {{.ranks = 4, .batch_size = 8, .steps = 11}, {.ranks = 6, .batch_size = 5}},
    {{.ranks = 4, .batch_size = 8, .steps = 5},
     {.ranks = 3, .batch_size = 10, .steps = 4},
     {.ranks = 6, .batch_size = 8, .steps = 7},
     {.ranks = 2, .batch_size = 3}},
    {{.ranks = 4, .batch_size = 8, .steps = 0}, {.ranks = 5, .batch_size = 8}},
};

TEST(Resume, WithPaddingSeesEachSampleOnceAndThenTheFirstOnesAgain) {
  for (const std::uint64_t epoch : {0, 3}) {
    const Indices order = RandomSampler(kSize, {.seed = 9}).order(epoch);
    for (const std::vector<Leg>& parts : kCuts) {
      Outcome all = epoch_in(parts, plain(false, epoch));
      ASSERT_GE(all.ledger.size(), order.size());
      const Indices padding(all.ledger.begin() + kSize, all.ledger.end());
      EXPECT_LT(padding.size(), std::size_t(parts.back().ranks));
      EXPECT_TRUE(std::equal(padding.begin(), padding.end(), order.begin())) << "padded by other samples";
      all.ledger.resize(kSize);
      EXPECT_EQ(all.ledger, order);
    }
  }
}

TEST(Resume, WithDropLastLeavesOutFewerThanThereAreRanksAtTheEnd) {
  const Indices order = RandomSampler(kSize, {.seed = 9}).order(0);
  for (const std::vector<Leg>& parts : kCuts) {
    const Outcome all = epoch_in(parts, plain(true));
    EXPECT_GT(all.ledger.size() + std::size_t(parts.back().ranks), order.size());
    EXPECT_TRUE(std::equal(all.ledger.begin(), all.ledger.end(), order.begin()));
    EXPECT_LE(all.ledger.size(), order.size());
  }
}

TEST(Resume, TheNextEpochIsTheNormalOne) {
  const MakeSampler make = plain();
  const Outcome first = epoch_in(kCuts[0], make);
  EXPECT_EQ(sampler_state(first.state).epoch, 1u);
  EXPECT_EQ(sampler_state(first.state).consumed, 0);
  const Outcome resumed = epoch_in({{.ranks = 6, .batch_size = 7}}, make, first.state);
  const Outcome normal = epoch_in({{.ranks = 6, .batch_size = 7}}, plain(false, 1));
  EXPECT_EQ(resumed.ledger, normal.ledger);
  EXPECT_EQ(resumed.state, normal.state);
}

TEST(Resume, OfAWeightedOrder) {
  std::vector<double> weights(kSize);
  std::iota(weights.begin(), weights.end(), 1);
  const auto weighted =
      std::make_shared<WeightedRandomSampler>(weights, WeightedRandomSamplerOptions{.num_samples = 500, .seed = 2});
  const MakeSampler make = [&](int ranks, int rank) { return DistributedSampler(weighted, ranks, rank); };
  const Outcome all = epoch_in({{.ranks = 4, .batch_size = 8, .steps = 5}, {.ranks = 2, .batch_size = 8}}, make);
  EXPECT_EQ(all.ledger, weighted->order(0));
}

// As in Python's training loops: set_epoch() at the beginning of each epoch, the resumed one included.
TEST(Resume, SetEpochKeepsThePlaceInItsEpoch) {
  DistributedSampler before(kSize, 4, 1, {});
  before.set_epoch(2);
  DistributedSampler after(kSize, 3, 1, {});
  after.restore(before.state(10));
  EXPECT_EQ(after.num_samples(), (kSize - 40 + 2) / 3);
  after.set_epoch(2);
  EXPECT_EQ(after.num_samples(), (kSize - 40 + 2) / 3);
  after.set_epoch(3);
  EXPECT_EQ(after.num_samples(), (kSize + 2) / 3);
}

TEST(Resume, RefusesAStateOfAnotherOrder) {
  DistributedSampler sampler(100, 2, 0, {.seed = 1});
  const SamplerState state = sampler.state(20);
  const std::string message =
      "distributed sampler: the state is of another order of epoch 0: another set, seed or "
      "shuffling";
  DistributedSampler seed(100, 2, 0, {.seed = 2}), size(101, 2, 0, {.seed = 1}), plain(100, 2, 0, {.shuffle = false});
  for (DistributedSampler* other : {&seed, &size, &plain}) {
    EXPECT_EQ(testing::usage_error([&] { other->restore(state); }), message);
    EXPECT_EQ(other->num_samples(), other == &size ? 51 : 50) << "nothing has changed";
  }
  SamplerState wrong = state;
  wrong.consumed = 101;
  EXPECT_EQ(testing::usage_error([&] { sampler.restore(wrong); }), "distributed sampler: 101 samples consumed of 100");
  EXPECT_EQ(testing::usage_error([&] { sampler.state(51); }), "distributed sampler: 51 samples taken of 50");
  testing::usage_error([&] { sampler.state(-1); });
}

}  // namespace
}  // namespace lockstep::data
