#include "lockstep/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

ImageSet ramp() {
  return {torch::arange(4 * 256, torch::kLong).remainder(256).to(torch::kByte).view({4, 1, 16, 16}),
          torch::tensor({3, 1, 2, 0}, torch::kLong), 4};
}

TEST(MakeBatch, HasTheBitsOfToTensorForEveryPixelValue) {
  const ImageSet set = ramp();
  const std::vector<std::int64_t> indices = {2, 0, 2};
  const Batch batch = make_batch(set, indices);
  const at::Tensor chosen = torch::tensor({2, 0, 2}, torch::kLong);
  EXPECT_TRUE(at::equal(batch.data, set.images.index_select(0, chosen).to(torch::kFloat).div(255)));
  EXPECT_TRUE(at::equal(batch.target, set.labels.index_select(0, chosen)));
}

TEST(MakeBatch, OfNoSamplesIsEmpty) {
  const Batch batch = make_batch(ramp(), {});
  EXPECT_EQ(batch.data.sizes(), (std::vector<std::int64_t>{0, 1, 16, 16}));
  EXPECT_EQ(batch.target.numel(), 0);
}

TEST(MakeBatch, RefusesIndicesOutsideTheSet) {
  for (const std::int64_t index : {std::int64_t(-1), std::int64_t(4)}) {
    const std::vector<std::int64_t> indices = {0, index};
    EXPECT_EQ(testing::usage_error([&] { make_batch(ramp(), indices); }),
              "sample " + std::to_string(index) + " asked for, the set has 4");
  }
}

}  // namespace
}  // namespace lockstep::data
