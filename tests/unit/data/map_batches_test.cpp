#include "lockstep/data/map_batches.h"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "lockstep/data/data_loader.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

struct Squares {
  std::int64_t count = 5;
  std::int64_t size() const { return count; }
  Batch get(std::int64_t i) const { return {at::full({2}, double(i)), at::full({}, i * i, at::kLong)}; }
};

// With names and types of its own, and without a target.
struct Inputs {
  struct Example {
    at::Tensor data, target;
  };
  int size() const { return 3; }
  Example get(std::int64_t i) const { return {at::full({1, 2}, double(i)), {}}; }
};

TEST(MapBatches, StacksSamples) {
  const std::int64_t indices[] = {3, 0, 4};
  const Batch batch = MapBatches(Squares()).make(0, indices);
  EXPECT_EQ(batch.data.sizes(), (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(batch.data[2][1].item<float>(), 4);
  EXPECT_EQ(batch.target.sizes(), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(batch.target[0].item<std::int64_t>(), 9);
  const Batch inputs = MapBatches(Inputs()).make(0, std::span(indices).subspan(1, 1));
  EXPECT_EQ(inputs.data.sizes(), (std::vector<std::int64_t>{1, 1, 2}));
  EXPECT_FALSE(inputs.target.defined());
}

TEST(MapBatches, ADataLoaderTakesTheSetAsItIs) {
  DataLoader loader(Squares{6}, Part{.rank = 1, .ranks = 2, .shards = 2}, {.batch_size = 2});
  std::vector<std::int64_t> seen;
  for (auto& batch : loader)
    for (std::int64_t i = 0; i < batch.target.size(0); ++i) seen.push_back(batch.target[i].item<std::int64_t>());
  EXPECT_EQ(seen, (std::vector<std::int64_t>{1, 9, 25}));
}

// Sample i of epoch e is i + e / 8.
struct Augmented {
  std::int64_t size() const { return 4; }
  Batch get(std::int64_t i, std::uint64_t epoch) const { return {at::full({}, double(i) + double(epoch) / 8), {}}; }
};

TEST(MapBatches, ASampleMayBeAnotherInEachEpoch) {
  const std::int64_t indices[] = {3};
  EXPECT_EQ(MapBatches(Augmented()).make(2, indices).data[0].item<float>(), 3.25);
  DataLoader loader(Augmented(), Part{}, {.batch_size = 4});
  for (const double epoch : {0, 1}) {
    for (auto& batch : loader) EXPECT_EQ(batch.data[1].item<double>(), 1 + epoch / 8);
  }
}

struct WithoutSamples {
  std::int64_t size() const { return 4; }
};

static_assert(MapStyle<Squares> && MapStyle<Inputs> && MapStyle<Augmented>);
static_assert(!MapStyle<WithoutSamples>);
static_assert(!MapStyle<std::shared_ptr<const Batches>>, "that is the other constructor's");

std::ptrdiff_t threads_here() {
  using std::filesystem::directory_iterator;
  return std::distance(directory_iterator("/proc/self/task"), directory_iterator());
}

// Operators that are worth several threads each.
struct Products {
  std::int64_t size() const { return 6; }
  Batch get(std::int64_t i) const {
    const at::Tensor matrix = at::full({512, 512}, 1e-3 * double(i));
    return {matrix.mm(matrix).add(1), {}};
  }
};

TEST(MapBatches, OperatorsInLoaderThreadsStartNoThreadsOfTheirOwn) {
  const int threads = at::get_num_threads();
  at::set_num_threads(4);
  const std::ptrdiff_t before = threads_here();
  std::ptrdiff_t most = 0;
  {
    DataLoader loader(Products(), Part{}, {.batch_size = 1, .num_workers = 2});
    for (const auto& batch : loader) {
      EXPECT_EQ(batch.data.dim(), 3);
      most = std::max(most, threads_here());
    }
    EXPECT_EQ(at::get_num_threads(), 4) << "the training step's are what they were";
  }
  EXPECT_LE(most, before + 2) << "more than the two workers";
  at::set_num_threads(threads);
}

// What a sample throws comes out at its batch.
struct Damaged : Squares {
  Batch get(std::int64_t i) const {
    if (i == 3) throw UsageError("a broken file");
    return Squares::get(i);
  }
};

TEST(MapBatches, ADamagedSampleIsNamedAtItsPlace) {
  DataLoader loader(Damaged(), Part{}, {.batch_size = 2});
  EXPECT_TRUE(loader.next());
  EXPECT_EQ(testing::usage_error([&] { loader.next(); }), "sample 3: a broken file");
  EXPECT_EQ(loader.state(), (DataLoaderState{0, 1}));
  EXPECT_EQ(testing::usage_error([&] { loader.next(); }), "sample 3: a broken file") << "it is still the next one";
  loader.restore({0, 2});
  EXPECT_EQ(loader.next()->target[0].item<std::int64_t>(), 16) << "behind it the set is sound";
}

// Samples that differ: by the number of values, the type, or in having a target.
struct Uneven {
  std::int64_t odd;
  std::int64_t size() const { return 5; }
  Batch get(std::int64_t i) const {
    const at::Tensor label = at::full({}, i, at::kLong);
    if (i != 4) return {at::full({2}, double(i)), label};
    if (odd == 0) return {at::full({3}, 4.0), label};
    if (odd == 1) return {at::full({2}, 4, at::kLong), label};
    if (odd == 2) return {at::full({2}, 4.0), {}};
    throw std::runtime_error("no file 77");
  }
};

TEST(MapBatches, WhatIsNotLikeTheFirstOfItsBatchIsNamed) {
  const std::int64_t indices[] = {3, 0, 4};
  const auto said = [&](std::int64_t odd) {
    return testing::usage_error([&] { MapBatches(Uneven{odd}).make(0, indices); });
  };
  EXPECT_EQ(said(0), "sample 4: data Float [3], that of sample 3 is Float [2]");
  EXPECT_EQ(said(1), "sample 4: data Long [2], that of sample 3 is Float [2]");
  EXPECT_EQ(said(2), "sample 4: target none, that of sample 3 is Long []");
  try {
    MapBatches(Uneven{3}).make(0, indices);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "sample 4: no file 77");
  }
  const std::int64_t beyond[] = {5};
  EXPECT_EQ(testing::usage_error([&] { MapBatches(Squares()).make(0, beyond); }), "sample 5: the set has 5 samples");
}

}  // namespace
}  // namespace lockstep::data
