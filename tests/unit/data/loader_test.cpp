#include "lockstep/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <set>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

// A batch that says its number.
Batch numbered(std::int64_t number) {
  Batch batch{at::empty({1}, at::kFloat), at::empty({1}, at::kLong)};
  *batch.target.mutable_data_ptr<std::int64_t>() = number;
  return batch;
}

std::vector<std::int64_t> drain(Loader& loader) {
  std::vector<std::int64_t> numbers;
  while (const auto batch = loader.next()) numbers.push_back(batch->target.item<std::int64_t>());
  return numbers;
}

std::vector<std::int64_t> range(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> numbers;
  for (; first < last; ++first) numbers.push_back(first);
  return numbers;
}

TEST(Loader, GivesAllBatchesInOrderForAnyNumberOfWorkers) {
  for (const int workers : {1, 2, 5}) {
    for (const int prefetch : {1, 2, 7}) {
      Loader loader(numbered, 0, 50, {.workers = workers, .prefetch = prefetch});
      EXPECT_EQ(drain(loader), range(0, 50));
      EXPECT_FALSE(loader.next()) << "the end stays the end";
    }
  }
}

TEST(Loader, StartsAtAnyBatch) {
  Loader loader(numbered, 37, 50);
  EXPECT_EQ(loader.position(), 37);
  EXPECT_EQ(drain(loader), range(37, 50));
  EXPECT_EQ(loader.position(), 50);
  Loader nothing(numbered, 50, 50);
  EXPECT_FALSE(nothing.next());
}

TEST(Loader, WorksAheadNoFurtherThanAsked) {
  std::atomic<std::int64_t> made{0};
  std::atomic<std::int64_t> farthest_ahead{0};
  std::atomic<std::int64_t> taken{0};
  const auto source = [&](std::int64_t number) {
    ++made;
    farthest_ahead = std::max<std::int64_t>(farthest_ahead, number - taken);
    return numbered(number);
  };
  Loader loader(source, 0, 100, {.workers = 1, .prefetch = 3});
  while (loader.next()) ++taken;
  EXPECT_EQ(made, 100) << "each batch is made once";
  EXPECT_LE(farthest_ahead, 3);
}

TEST(Loader, ThrowsWhatTheSourceThrewOnceAtItsPlace) {
  const auto source = [](std::int64_t number) {
    if (number == 3) throw UsageError("sample 7 is damaged");
    return numbered(number);
  };
  Loader loader(source, 0, 50, {.workers = 2, .prefetch = 4});
  for (std::int64_t number = 0; number < 3; ++number) EXPECT_EQ(loader.next()->target.item<std::int64_t>(), number);
  EXPECT_EQ(testing::usage_error([&] { loader.next(); }), "sample 7 is damaged");
  try {
    loader.next();
    ADD_FAILURE() << "went on after a failure";
  } catch (const UsageError&) {
    ADD_FAILURE() << "the failure came twice";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "loader: stopped, batch 3 failed before");
  }
}

TEST(Loader, CanBeDroppedAtAnyTime) {
  for (int taken = 0; taken < 5; ++taken) {
    std::atomic<int> made{0};
    const auto source = [&](std::int64_t number) {
      ++made;
      return numbered(number);
    };
    {
      Loader loader(source, 0, 1'000'000'000, {.workers = 2, .prefetch = 3});
      for (int i = 0; i < taken; ++i) ASSERT_TRUE(loader.next());
    }
    EXPECT_LE(made, taken + 3) << "threads went on after the end";
  }
}

TEST(Loader, SaysWhenABatchIsLate) {
  std::mutex gate;
  std::unique_lock closed(gate);
  const auto source = [&](std::int64_t number) {
    const std::lock_guard wait(gate);
    return numbered(number);
  };
  Loader loader(source, 0, 2, {.timeout_seconds = 0.02});
  try {
    loader.next();
    ADD_FAILURE() << "no deadline";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("loader: batch 0 not ready after 0.02"));
  }
  closed.unlock();
}

TEST(Loader, RefusesNoWorkersAndNoPrefetch) {
  EXPECT_EQ(testing::usage_error([] { Loader(numbered, 0, 1, {.workers = 0}); }),
            "loader: 0 workers and a prefetch of 2, at least 1 of each expected");
  testing::usage_error([] { Loader(numbered, 0, 1, {.prefetch = 0}); });
}

}  // namespace
}  // namespace lockstep::data
