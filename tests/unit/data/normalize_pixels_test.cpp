#include "lockstep/data/normalize_pixels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "lockstep/data/picture_batches.h"
#include "lockstep/data/synthetic.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/geometry.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;
using testing::usage_error;

std::shared_ptr<const PictureSet> noise(int channels) {
  return std::make_shared<SyntheticPictures>(SyntheticOptions{.size = 6, .image_size = {37, 45}, .channels = channels});
}

// Its layout, too: what comes out is what the model would have been given. One channel has any stride.
void expect_the_hosts(const std::shared_ptr<const PictureSet>& set, const PictureBatchOptions& host) {
  const Compose transforms = Compose().then(RandomCrop(35, {.padding = 4})).then(RandomHorizontalFlip());
  const std::vector<std::int64_t> indices = {4, 0, 4, 1};
  PictureBatchOptions as_bytes = host;
  as_bytes.normalize.type = PixelType::uint8;
  const at::Tensor expected = PictureBatches(set, transforms, host).make(2, indices).data;
  const at::Tensor pixels = PictureBatches(set, transforms, as_bytes).make(2, indices).data;
  ASSERT_EQ(pixels.scalar_type(), at::kByte);
  const at::Tensor found = NormalizePixels(host.normalize, at::kCPU)(pixels);
  EXPECT_EQ(found.scalar_type(), expected.scalar_type());
  EXPECT_EQ(found.sizes(), expected.sizes());
  EXPECT_EQ(found.suggest_memory_format(), expected.suggest_memory_format());
  if (found.size(-3) > 1) {
    EXPECT_EQ(found.strides(), expected.strides());
  }
  EXPECT_TRUE(at::equal(found, expected));
}

TEST(NormalizePixels, HasTheBitsOfNormalizeOnTheHost) {
  for (const int channels : {1, 3})
    for (const PixelLayout layout : {PixelLayout::planes, PixelLayout::channels_last})
      for (const PixelType type : {PixelType::float32, PixelType::bfloat16})
        for (const bool crops : {false, true}) {
          PictureBatchOptions host{
              .normalize = {
                  .mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}, .layout = layout, .type = type}};
          if (crops) host.crops = FiveCrop(20);
          expect_the_hosts(noise(channels), host);
        }
}

// As where a set of one layout meets a model of the other.
TEST(NormalizePixels, TakesBytesOfEitherLayout) {
  const at::Tensor pixels = torch::randint(0, 256, {2, 3, 5, 7}, torch::kByte);
  const at::Tensor last = pixels.contiguous(at::MemoryFormat::ChannelsLast);
  for (const PixelLayout layout : {PixelLayout::planes, PixelLayout::channels_last}) {
    const NormalizePixels normalize({.mean = {0.1, 0.2, 0.3}, .std = {0.5}, .layout = layout}, at::kCPU);
    const at::Tensor mean = torch::tensor({0.1f, 0.2f, 0.3f}).view({3, 1, 1});
    const at::Tensor expected = pixels.to(at::kFloat).div(255).sub(mean).div(0.5f);
    for (const at::Tensor& given : {pixels, last, pixels[0]}) {
      const at::Tensor found = normalize(given);
      EXPECT_TRUE(at::equal(found, given.dim() == 3 ? expected[0] : expected));
    }
    EXPECT_EQ(normalize(pixels).is_contiguous(), layout == PixelLayout::planes);
    EXPECT_EQ(normalize(last).is_contiguous(), layout == PixelLayout::planes);
  }
}

TEST(NormalizePixels, RefusesWhatIsNoPictureOfBytes) {
  EXPECT_THAT(usage_error([] { NormalizePixels({.type = PixelType::uint8}, at::kCPU); }), HasSubstr("uint8"));
  EXPECT_THAT(usage_error([] { NormalizePixels({.std = {0}}, at::kCPU); }), HasSubstr("std"));
  const NormalizePixels normalize({}, at::kCPU);
  EXPECT_THAT(usage_error([&] { normalize(torch::zeros({2, 3, 4, 4})); }), HasSubstr("Float [2, 3, 4, 4] on cpu"));
  EXPECT_THAT(usage_error([&] { normalize(torch::zeros({2, 4, 4, 4}, torch::kByte)); }), HasSubstr("[2, 4, 4, 4]"));
  EXPECT_THAT(usage_error([&] { normalize({}); }), HasSubstr("no tensor"));
}

TEST(NormalizePixels, NothingElseWorksOnNumbersThatAreBytes) {
  const PictureBatchOptions erased{.normalize = {.type = PixelType::uint8}, .erasing = RandomErasingOptions{.p = 1}};
  EXPECT_THAT(usage_error([&] { PictureBatches(noise(3), Compose(), erased); }), HasSubstr("RandomErasing"));
}

}  // namespace
}  // namespace lockstep::data
