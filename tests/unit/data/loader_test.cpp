#include "lockstep/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <set>

#include "lockstep/data/decode_time.h"
#include "tests/support/usage_error.h"
#include "tests/support/wait_until.h"

namespace lockstep::data {
namespace {

// A batch that says its number.
Batch numbered(std::int64_t number) {
  Batch batch{at::empty({1}, at::kFloat), at::empty({1}, at::kLong)};
  *batch.target.mutable_data_ptr<std::int64_t>() = number;
  return batch;
}

// Holds a source up until it is opened, or gone.
class Gate {
 public:
  void open() { open_ = true; }
  void pass() const {
    testing::wait_until([this] { return open_.load(); });
  }

 private:
  std::atomic<bool> open_{false};
};

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

TEST(Loader, GivesOnlyWhatIsReadyWhereAsked) {
  Gate gate;
  const auto source = [&](std::int64_t number) {
    if (number == 1) gate.pass();
    if (number == 2) throw std::runtime_error("broken");
    return numbered(number);
  };
  Loader loader(source, 0, 3, {.workers = 1, .prefetch = 3});
  const auto wait_until_made = [&](std::int64_t count) {
    testing::wait_until([&] { return loader.statistics().workers[0].batches == count; });
  };
  wait_until_made(1);
  EXPECT_TRUE(loader.next_if_ready());
  EXPECT_FALSE(loader.next_if_ready()) << "in work";
  EXPECT_EQ(loader.position(), 1);
  gate.open();
  wait_until_made(3);
  EXPECT_TRUE(loader.next_if_ready());
  EXPECT_FALSE(loader.next_if_ready()) << "next() would throw";
  EXPECT_THROW(loader.next(), std::runtime_error);
  EXPECT_FALSE(loader.next_if_ready()) << "stopped";
  Loader nothing(numbered, 3, 3);
  EXPECT_FALSE(nothing.next_if_ready());
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
  const auto gate = std::make_shared<Gate>();
  const auto source = [gate](std::int64_t number) {
    gate->pass();
    return numbered(number);
  };
  Loader loader(source, 0, 2, {.timeout_seconds = 0.02});
  try {
    loader.next();
    ADD_FAILURE() << "no deadline";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("loader: batch 0 not ready after 0.02"));
  }
  gate->open();
}

TEST(Loader, LeavesABlockedWorkerBehindWithItsSource) {
  const auto gate = std::make_shared<Gate>();
  std::weak_ptr<int> source_alive;
  {
    const auto owned = std::make_shared<int>(0);
    source_alive = owned;
    const auto source = [gate, owned](std::int64_t number) {
      if (number == 1) gate->pass();
      return numbered(number);
    };
    Loader loader(source, 0, 3, {.workers = 2, .timeout_seconds = 0.05});
    ASSERT_TRUE(loader.next());
    EXPECT_THROW(loader.next(), Error);
  }
  EXPECT_FALSE(source_alive.expired()) << "the worker is still in the source";
  gate->open();
  testing::wait_until([&] { return source_alive.expired(); });
}

TEST(Loader, WaitsForABatchInWorkWhenDropped) {
  std::atomic<bool> in_source = false, done = false;
  {
    const auto source = [&](std::int64_t number) {
      in_source = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      done = true;
      return numbered(number);
    };
    const Loader loader(source, 0, 1);
    testing::wait_until([&] { return in_source.load(); });
  }
  EXPECT_TRUE(done);
}

TEST(Loader, GoesOnFromARestoredState) {
  Loader loader(numbered, 0, 50, {.workers = 3, .prefetch = 6});
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(loader.next());
  const LoaderState state = loader.state();
  EXPECT_EQ(state, LoaderState{20}) << "what was made ahead does not count";
  EXPECT_EQ(drain(loader), range(20, 50));
  loader.restore(state);
  EXPECT_EQ(loader.position(), 20);
  EXPECT_EQ(drain(loader), range(20, 50));
  for (const std::int64_t position : {40, 3, 3, 49, 0}) {
    loader.restore({position});
    EXPECT_EQ(loader.next()->target.item<std::int64_t>(), position);
  }
  EXPECT_EQ(drain(loader), range(1, 50));
  loader.restore({50});
  EXPECT_FALSE(loader.next());
}

// The other worker makes the batch anew and is done before the first one is: what comes last must not win.
TEST(Loader, DropsABatchThatIsInWorkWhileTheStateIsRestored) {
  Gate gate;
  std::atomic<int> begun = 0;
  const auto source = [&](std::int64_t number) {
    const int call = begun++;
    if (call == 0) gate.pass();
    Batch batch = numbered(number);
    *batch.data.mutable_data_ptr<float>() = float(call);
    return batch;
  };
  Loader loader(source, 0, 1, {.workers = 2});
  const auto made = [&] {
    const LoaderStatistics statistics = loader.statistics();
    return statistics.workers[0].batches + statistics.workers[1].batches;
  };
  testing::wait_until([&] { return begun == 1; });
  loader.restore({0});
  testing::wait_until([&] { return made() == 1; });
  gate.open();
  testing::wait_until([&] { return made() == 2; });
  EXPECT_EQ(loader.next()->data.item<float>(), 1) << "the first is of the time before";
}

TEST(Loader, RefusesStatesOutsideAndAfterAFailure) {
  const auto source = [](std::int64_t number) -> Batch { throw UsageError("no " + std::to_string(number)); };
  Loader loader(source, 0, 5);
  EXPECT_EQ(testing::usage_error([&] { loader.restore({6}); }), "loader: state of batch 6, 0 to 5 expected");
  testing::usage_error([&] { loader.restore({-1}); });
  EXPECT_EQ(testing::usage_error([&] { loader.next(); }), "no 0");
  EXPECT_THROW(loader.restore({0}), Error);
}

TEST(Loader, CountsWhatItsWorkersDo) {
  const auto source = [](std::int64_t number) {
    const DecodeTime counted;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return numbered(number);
  };
  Loader loader(source, 0, 20, {.workers = 2});
  EXPECT_EQ(drain(loader), range(0, 20));
  loader.restore({20});  // workers that waited wake up and count it
  const LoaderStatistics statistics = loader.statistics();
  ASSERT_EQ(statistics.workers.size(), 2u);
  std::int64_t batches = 0;
  double decoded = 0;
  for (const WorkerStatistics& worker : statistics.workers) {
    EXPECT_GE(worker.source_seconds, worker.decode_seconds);
    EXPECT_GE(worker.decode_seconds, 0.002 * double(worker.batches));
    batches += worker.batches;
    decoded += worker.decode_seconds;
  }
  EXPECT_EQ(batches, 20);
  EXPECT_GE(decoded, 0.04);
  EXPECT_GT(statistics.waiting_seconds, 0);
}

TEST(Loader, CountsTheWaitingForRoom) {
  Loader loader(numbered, 0, 3, {.prefetch = 1});
  testing::wait_until([&] { return loader.statistics().workers[0].batches == 1; });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(loader.next());
  EXPECT_TRUE(loader.next()) << "which was begun after the wait";
  EXPECT_GE(loader.statistics().workers[0].waiting_seconds, 0.005);
}

TEST(Loader, RefusesNoWorkersAndNoPrefetch) {
  EXPECT_EQ(testing::usage_error([] { Loader(numbered, 0, 1, {.workers = 0}); }),
            "loader: 0 workers and a prefetch of 2, at least 1 of each expected");
  testing::usage_error([] { Loader(numbered, 0, 1, {.prefetch = 0}); });
}

}  // namespace
}  // namespace lockstep::data
