// Batches of pictures that lie in memory and are only placed: what is made of them without a picture in between is what
// is made of the same samples one by one.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numeric>

#include "lockstep/base/random.h"
#include "lockstep/data/picture_batches.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/geometry.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::usage_error;

constexpr std::int64_t kPictures = 24;

std::shared_ptr<const MemoryPictures> noise(Size size, int channels) {
  MemoryPictures::Content content{.size = size, .channels = channels, .classes = {"even", "odd"}};
  base::RandomStream random(1, 2, 3);
  content.pixels.resize(std::size_t(kPictures * size.height * size.width * channels));
  for (std::uint8_t& pixel : content.pixels) pixel = std::uint8_t(random.next());
  for (std::int64_t i = 0; i < kPictures; ++i) content.labels.push_back(i % 2);
  return std::make_shared<MemoryPictures>(std::move(content));
}

// The same samples, of which nobody knows where they lie.
class Elsewhere : public PictureSet {
 public:
  explicit Elsewhere(std::shared_ptr<const PictureSet> set) : set_(std::move(set)) {}
  std::int64_t size() const override { return set_->size(); }
  Sample get(std::int64_t index) const override { return set_->get(index); }
  const std::vector<std::string>& classes() const override { return set_->classes(); }

 private:
  std::shared_ptr<const PictureSet> set_;
};

void expect_the_samples(const std::shared_ptr<const MemoryPictures>& set, const Compose& transforms,
                        PictureBatchOptions options) {
  std::vector<std::int64_t> indices(std::size_t(kPictures * options.repetitions));
  std::iota(indices.rbegin(), indices.rend(), 0);
  options.normalize.mean = {0.4914, 0.4822, 0.1307};
  options.normalize.std = {0.2470, 0.2435, 0.3081};
  for (const PixelLayout layout : {PixelLayout::planes, PixelLayout::channels_last})
    for (const PixelType type : {PixelType::float32, PixelType::bfloat16, PixelType::uint8}) {
      options.normalize.layout = layout;
      options.normalize.type = type;
      const Batch placed = PictureBatches(set, transforms, options).make(5, indices);
      const Batch samples = PictureBatches(std::make_shared<Elsewhere>(set), transforms, options).make(5, indices);
      ASSERT_EQ(placed.data.sizes(), samples.data.sizes());
      ASSERT_EQ(placed.data.strides(), samples.data.strides());
      EXPECT_TRUE(at::equal(placed.data, samples.data));
      EXPECT_TRUE(at::equal(placed.target, samples.target));
    }
}

TEST(PlacedBatches, AreWhatTheSamplesMakeOneByOne) {
  const Border red{.fill = {200, 10, 20}}, edge{.mode = PaddingMode::edge};
  const Compose lists[] = {
      Compose(),
      Compose().then(RandomHorizontalFlip()),
      Compose().then(RandomCrop(32, {.padding = 4})).then(RandomHorizontalFlip()),
      Compose().then(RandomHorizontalFlip()).then(RandomCrop(20, {.padding = 7, .border = red})),
      Compose().then(RandomHorizontalFlip()).then(CenterCrop({9, 21})).then(RandomHorizontalFlip()),
      Compose().then(CenterCrop({70, 90})),
      Compose().then(RandomCrop({60, 17}, {.pad_if_needed = true, .border = red})).then(RandomHorizontalFlip(1)),
      Compose().then(RandomCrop(2, {.padding = 40, .pad_if_needed = true, .border = red})),
      Compose().then(RandomCrop(18, {.padding = {60, 0}, .border = red})),
      Compose().then(RandomCrop(28, {.padding = 4, .border = edge})),
      Compose().then(RandomCrop(40, {.padding = 8})).then(CenterCrop(44)),
  };
  for (const Size size : {Size{32, 32}, Size{28, 28}, Size{33, 47}})
    for (const int channels : {1, 3})
      for (const Compose& transforms : lists) {
        SCOPED_TRACE(to_string(size) + ", " + std::to_string(channels) + ", list " +
                     std::to_string(&transforms - lists));
        expect_the_samples(noise(size, channels), transforms, {.seed = 7, .repetitions = 3});
      }
}

// A set of one picture of one row begins and ends where the memory does: AddressSanitizer sees what is read beyond.
TEST(PlacedBatches, ReadNothingBeyondTheSet) {
  for (const Size size : {Size{1, 1}, Size{1, 16}, Size{2, 17}})
    for (const int channels : {1, 3})
      expect_the_samples(noise(size, channels), Compose().then(RandomCrop(19, {.padding = 18})), {});
}

TEST(PlacedBatches, NameTheSampleThatDoesNotFit) {
  const std::vector<std::int64_t> beyond = {0, kPictures}, some = {3};
  const PictureBatches plain(noise({8, 8}, 1), Compose());
  EXPECT_EQ(usage_error([&] { plain.make(0, beyond); }), "sample 24: sample 24 asked for, the set has 24");
  const PictureBatches cropped(noise({8, 8}, 1), Compose().then(RandomCrop(9)));
  EXPECT_EQ(usage_error([&] { cropped.make(0, some); }),
            "sample 3: RandomCrop: 9x9 out of a picture of 8x8 (padding included); choose a smaller crop, more padding "
            "or pad_if_needed");
}

TEST(Compose, OnlyPlacesWhereItMirrorsAndCropsOnce) {
  EXPECT_TRUE(Compose().only_places());
  EXPECT_TRUE(Compose().then(RandomCrop(4)).then(RandomHorizontalFlip()).only_places());
  EXPECT_FALSE(Compose().then(RandomCrop(4)).then(CenterCrop(4)).only_places());
  EXPECT_FALSE(Compose().then(RandomCrop(4, {.border = {.mode = PaddingMode::reflect}})).only_places());
  EXPECT_FALSE(Compose().then(RandomHorizontalFlip()).then(RandomVerticalFlip()).only_places());
}

}  // namespace
}  // namespace lockstep::data
