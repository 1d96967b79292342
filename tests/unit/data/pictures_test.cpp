#include "lockstep/data/pictures.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/data/transforms/crop.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kTwo[] = {1, 0};

at::Tensor labels_of_two() { return at::arange(2, at::kLong); }

TEST(PicturesOfTensors, ArePixelsBy255InTheirPlaces) {
  const at::Tensor images = at::arange(2 * 3 * 4 * 5, at::kLong).to(at::kByte).view({2, 3, 4, 5});
  const auto batches = pictures(images, labels_of_two(), 2);
  EXPECT_EQ(batches->size(), 2);
  EXPECT_EQ(batches->set().classes(), (std::vector<std::string>{"0", "1"}));
  const Batch batch = batches->make(0, kTwo);
  EXPECT_TRUE(at::equal(batch.data, images.flip(0).to(at::kFloat).div(255)));
  EXPECT_TRUE(at::equal(batch.target, labels_of_two().flip(0)));
}

TEST(PicturesOfASet, AreItsBatchesPreparedAsAsked) {
  const MemoryPictures set({.size = {1, 2}, .channels = 1, .pixels = {0, 255}, .labels = {0}, .classes = {"ant"}});
  const std::int64_t first[] = {0};
  const auto halves = [] { return Preparation{.batch = {.normalize = {.mean = {0.5}, .std = {0.5}}}}; };
  const Batch batch = pictures(set, halves())->make(0, first);
  EXPECT_EQ(batch.data.sizes(), (std::vector<std::int64_t>{1, 1, 1, 2}));
  EXPECT_EQ(batch.data.min().item<float>(), -1);
  EXPECT_TRUE(at::equal(pictures(std::make_shared<MemoryPictures>(set), halves())->make(0, first).data, batch.data));
  EXPECT_EQ(pictures(set)->make(0, first).data.max().item<float>(), 1);
  EXPECT_EQ(testing::usage_error([] { pictures(std::shared_ptr<const PictureSet>()); }),
            "pictures: no set: the pointer to it is null");
}

TEST(PicturesOfTensors, GreyOnesNeedNoChannel) {
  const at::Tensor images = at::arange(2 * 4 * 5, at::kLong).to(at::kByte).view({2, 4, 5});
  const Batch batch = pictures(images, labels_of_two().to(at::kInt), 2)->make(0, kTwo);
  EXPECT_TRUE(at::equal(batch.data, images.flip(0).unsqueeze(1).to(at::kFloat).div(255)));
}

TEST(PicturesOfTensors, AreTransformed) {
  const auto batches =
      pictures(at::ones({2, 4, 4}, at::kByte), labels_of_two(), 2, {.transforms = Compose().then(CenterCrop({2, 2}))});
  EXPECT_EQ(batches->make(0, kTwo).data.sizes(), (std::vector<std::int64_t>{2, 1, 2, 2}));
}

TEST(PicturesOfTensors, OtherTensorsAreRefused) {
  const auto refusal = [](const at::Tensor& images, const at::Tensor& labels) {
    return testing::usage_error([&] { pictures(images, labels, 2); });
  };
  EXPECT_THAT(refusal(at::ones({2, 4, 4}), labels_of_two()), ::testing::HasSubstr("go to data::tensors()"));
  EXPECT_THAT(refusal(at::ones({2, 4, 4, 3}, at::kByte), labels_of_two()), ::testing::HasSubstr("[N, 1 or 3, height"));
  EXPECT_THAT(refusal({}, labels_of_two()), ::testing::HasSubstr("no tensor"));
  const at::Tensor right = at::ones({2, 4, 4}, at::kByte);
  EXPECT_THAT(refusal(right, at::zeros({3}, at::kLong)), ::testing::HasSubstr("integers [2]"));
  EXPECT_THAT(refusal(right, at::zeros({2})), ::testing::HasSubstr("Float"));
  EXPECT_EQ(refusal(right, at::full({2}, 2, at::kLong)), "label 2 of sample 0, there are 2 classes");
}

}  // namespace
}  // namespace lockstep::data
