// A loader goes on with what is left of an epoch that was begun in batches of another kind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "lockstep/data/data_loader.h"
#include "tests/support/usage_error.h"
#include "tests/unit/data/numbered_samples.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

// How batches may be: samples in a step, shards.
struct Kind {
  std::int64_t samples;
  int shards;
};
constexpr Kind kKinds[] = {{1, 1}, {4, 2}, {8, 2}, {4, 4}, {15, 5}};

DataLoaderOptions shuffled(const Kind& kind, bool drop_last = false) {
  return {.global_batch_size = kind.samples, .shuffle = true, .drop_last = drop_last};
}

void take(DataLoader& loader, std::int64_t batches, Numbers& into) {
  for (std::int64_t i = 0; i < batches; ++i) {
    const Numbers batch = samples_in(*loader.next());
    into.insert(into.end(), batch.begin(), batch.end());
  }
}

void take_all(DataLoader& loader, Numbers& into) {
  while (const auto batch = loader.next()) {
    const Numbers more = samples_in(*batch);
    into.insert(into.end(), more.begin(), more.end());
  }
}

void hand_on(DataLoader& before, DataLoader& after) {
  std::memcpy(after.kept().data(), before.kept().data(), before.kept().size());
}

// Interrupted anywhere, and once more in the rest: each sample is seen in the epoch, and only what fills the last
// samples up for all shards is seen twice. The next epoch is a whole one.
TEST(DataLoader, GoesOnInBatchesOfAnyKindWithWhatIsLeft) {
  ::testing::internal::CaptureStderr();
  for (const std::int64_t count : {16, 23, 61})
    for (const Kind& one : kKinds)
      for (const Kind& other : kKinds)
        for (std::int64_t taken = 0, all = DataLoader(samples(count), Part{.shards = one.shards}, shuffled(one)).size();
             taken <= all; taken += 1 + count / 5) {
          const Kind& third = kKinds[std::size_t(taken) % std::size(kKinds)];
          DataLoader first(samples(count), Part{.shards = one.shards}, shuffled(one));
          DataLoader second(samples(count), Part{.shards = other.shards}, shuffled(other));
          DataLoader last(samples(count), Part{.shards = third.shards}, shuffled(third));
          first.restore({1, 0});
          Numbers seen;
          take(first, taken, seen);
          hand_on(first, second);
          second.set_epoch(1);
          take(second, std::min<std::int64_t>(1, second.size() - second.state().batch), seen);
          hand_on(second, last);
          EXPECT_EQ(last.epoch(), 1);
          take_all(last, seen);
          EXPECT_LT(std::int64_t(seen.size()) - count, std::max({one.shards, other.shards, third.shards})) << count;
          EXPECT_EQ((std::set(seen.begin(), seen.end()).size()), std::size_t(count)) << count;
          DataLoader whole(samples(count), Part{.shards = third.shards}, shuffled(third));
          whole.set_epoch(2);
          EXPECT_EQ(pass(last), pass(whole)) << "the epoch behind it";
        }
  ::testing::internal::GetCapturedStderr();
}

// With drop_last no sample is seen twice, and fewer than a batch stay unseen.
TEST(DataLoader, GoesOnInOtherBatchesWithWholeOnesOnly) {
  ::testing::internal::CaptureStderr();
  for (std::int64_t taken = 0; taken <= 15; ++taken) {
    DataLoader before(samples(61), Part{.shards = 2}, shuffled({4, 2}, true));
    DataLoader after(samples(61), Part{.shards = 3}, shuffled({6, 3}, true));
    Numbers seen;
    take(before, taken, seen);
    hand_on(before, after);
    take_all(after, seen);
    EXPECT_EQ((std::set(seen.begin(), seen.end()).size()), seen.size()) << taken;
    EXPECT_GT(seen.size(), 61u - 6u) << taken;
  }
  ::testing::internal::GetCapturedStderr();
}

// What is left is dealt out to shards, not to ranks; a place in it can be gone back to; who left a pass goes on.
TEST(DataLoader, TheRestOfAnEpochDoesNotShowWhoComputesIt) {
  const DataLoaderOptions options = shuffled({6, 3});
  DataLoader before(samples(61), Part{.shards = 2}, shuffled({4, 2}));
  before.restore({2, 5});
  DataLoader alone(samples(61), Part{.shards = 3}, options);
  DataLoader first(samples(61), Part{.rank = 0, .ranks = 2, .shards = 3}, options);
  DataLoader second(samples(61), Part{.rank = 1, .ranks = 2, .shards = 3}, options);
  for (DataLoader* after : {&alone, &first, &second}) hand_on(before, *after);
  ::testing::internal::CaptureStderr();
  second.set_epoch(2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "rank 0 tells it";
  ::testing::internal::CaptureStderr();
  first.set_epoch(2);
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "lockstep: batches are of 6 samples in 3 shards, before they were of 4 samples in 2 shards: epoch 3 goes on "
      "behind 20 of its 61 samples\n");
  EXPECT_EQ(alone.state(), (DataLoaderState{.epoch = 2, .batch = 11 - 7, .seen = 20}));
  alone.next();
  const DataLoaderState place = alone.state();
  alone.restore({0, 1});
  alone.next();
  alone.restore({2, 4, 20});
  const std::vector<Numbers> of_first = pass(first), of_second = pass(second), of_all = pass(alone);
  ASSERT_EQ(of_all.size(), 7u);
  EXPECT_EQ(place, (DataLoaderState{2, 5, 20}));
  for (std::size_t i = 0; i < of_all.size(); ++i) {
    Numbers both = of_first[i];
    both.insert(both.end(), of_second[i].begin(), of_second[i].end());
    EXPECT_EQ(of_all[i], both);
  }
}

TEST(DataLoader, APlaceThatThereIsNotIsRefused) {
  DataLoader before(samples(24), Part{.shards = 2}, {.global_batch_size = 4});
  before.restore({1, 6});
  DataLoader after(samples(20), Part{.shards = 2}, {.global_batch_size = 8});
  hand_on(before, after);
  EXPECT_THAT(testing::usage_error([&] { after.next(); }),
              HasSubstr("no place behind 6 batches of 4 samples, of which an epoch has 5"));
  std::ranges::fill(after.kept(), std::byte(255));
  EXPECT_THAT(testing::usage_error([&] { after.set_epoch(0); }), HasSubstr("what is kept is no place of a loader"));
  EXPECT_THAT(testing::usage_error([&] { after.restore({0, 0, 5}); }), HasSubstr("and 5 samples before"));
  after.restore({1, 0});
  EXPECT_EQ(samples_in(*after.next()).size(), 8u) << "a place of its own";
}

TEST(DataLoader, TheEndOfAllMayBeSaidLater) {
  DataLoader loader(samples(10), Part{}, {.batch_size = 2});
  EXPECT_EQ(pass(loader).size(), 5u);
  loader.set_total_batches(7);
  EXPECT_EQ(pass(loader).size(), 2u);
  EXPECT_TRUE(pass(loader).empty());
  EXPECT_THAT(testing::usage_error([&] { loader.set_total_batches(-1); }), HasSubstr("a total of -1 batches"));
}

}  // namespace
}  // namespace lockstep::data
