#include "lockstep/data/picture_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "lockstep/data/loader.h"
#include "lockstep/data/readers/image_folder.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/geometry.h"
#include "tests/support/image_files.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::usage_error;

constexpr int kCount = 12;

std::shared_ptr<const PictureSet> colours() {
  MemoryPictures::Content content{.size = {16, 16}, .classes = {"even", "odd"}};
  for (int i = 0; i < kCount * 16 * 16 * 3; ++i) content.pixels.push_back(std::uint8_t(i * 37 + i / 768));
  for (int i = 0; i < kCount; ++i) content.labels.push_back(i % 2);
  return std::make_shared<MemoryPictures>(std::move(content));
}

Compose augmentation() { return Compose().then(RandomCrop(16, {.padding = 4})).then(RandomHorizontalFlip()); }

at::Tensor pixels_of(const PictureSet& set, std::int64_t index) {
  Sample sample = set.get(index);
  const ImageView& view = sample.picture.pixels();
  return torch::from_blob(const_cast<std::uint8_t*>(view.pixels), {16, 16, 3}, torch::kByte).permute({2, 0, 1});
}

TEST(PictureBatches, AreNormalisedPixelsAndLabels) {
  const std::vector<std::int64_t> indices = {7, 0, 7};
  for (const bool last : {false, true}) {
    for (const bool half : {false, true}) {
      const PictureBatches batches(colours(), Compose(),
                                   {.normalize = {.mean = {0.5, 0.4, 0.3},
                                                  .std = {0.2, 0.3, 0.4},
                                                  .layout = last ? PixelLayout::channels_last : PixelLayout::planes,
                                                  .type = half ? PixelType::bfloat16 : PixelType::float32}});
      const Batch batch = batches.make(0, indices);
      EXPECT_TRUE(batch.data.is_contiguous(last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous));
      EXPECT_EQ(batch.data.scalar_type(), half ? at::kBFloat16 : at::kFloat);
      const at::Tensor mean = torch::tensor({0.5f, 0.4f, 0.3f}).view({3, 1, 1});
      const at::Tensor std = torch::tensor({0.2f, 0.3f, 0.4f}).view({3, 1, 1});
      for (std::size_t i = 0; i < indices.size(); ++i) {
        const at::Tensor expected = pixels_of(batches.set(), indices[i]).to(at::kFloat).div(255).sub(mean).div(std);
        EXPECT_TRUE(at::equal(batch.data[std::int64_t(i)], half ? expected.to(at::kBFloat16) : expected));
        EXPECT_EQ(batch.target[std::int64_t(i)].item<std::int64_t>(), indices[i] % 2);
      }
    }
  }
}

TEST(PictureBatches, ASampleIsAugmentedAlikeInAnyBatchOfItsEpoch) {
  const PictureBatches batches(colours(), augmentation(), {.seed = 5});
  std::vector<std::int64_t> all(kCount);
  std::iota(all.begin(), all.end(), 0);
  const at::Tensor together = batches.make(3, all).data;
  for (const std::int64_t index : all) {
    const std::vector<std::int64_t> one = {index};
    EXPECT_TRUE(at::equal(batches.make(3, one).data[0], together[index]));
  }
  EXPECT_FALSE(at::equal(batches.make(4, all).data, together));
  EXPECT_FALSE(at::equal(PictureBatches(colours(), augmentation(), {.seed = 6}).make(3, all).data, together));
}

TEST(PictureBatches, ARepetitionIsTheSamplesPictureAugmentedAnew) {
  const PictureBatches batches(colours(), augmentation(), {.seed = 5, .repetitions = 3});
  std::vector<std::int64_t> repeated[3];
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t i = 0; i < kCount; ++i) repeated[r].push_back(i + r * kCount);
  const Batch once = batches.make(3, repeated[0]), again = batches.make(3, repeated[1]);
  EXPECT_TRUE(at::equal(once.data, PictureBatches(colours(), augmentation(), {.seed = 5}).make(3, repeated[0]).data));
  EXPECT_TRUE(at::equal(once.target, again.target));
  EXPECT_FALSE(at::equal(once.data, again.data));
  EXPECT_FALSE(at::equal(again.data, batches.make(3, repeated[2]).data));
  // Without augmentation all of them are the picture.
  const PictureBatches plain(colours(), Compose(), {.repetitions = 3});
  EXPECT_TRUE(at::equal(plain.make(0, repeated[0]).data, plain.make(0, repeated[2]).data));
  const std::vector<std::int64_t> beyond = {3 * kCount};
  EXPECT_THROW(plain.make(0, beyond), UsageError);
  EXPECT_THROW(PictureBatches(colours(), Compose()).make(0, repeated[1]), UsageError);
  EXPECT_EQ(usage_error([] { PictureBatches(colours(), Compose(), {.repetitions = 0}); }),
            "picture batches: 0 repetitions, at least 1 expected");
}

// 196 bytes, which Resize makes 7,680,000 rows of.
TEST(PictureBatches, EvaluateAThinPictureAndNameItWhereItIsTooLarge) {
  const testing::ScratchFolder folder;
  const testing::Bytes file = testing::png_file(testing::picture(30'000, 1), false);
  const std::string path = folder.write("a/thin.png", {file.begin(), file.end()});
  const auto set = std::make_shared<ImageFolder>(folder.path());
  const std::vector<std::int64_t> one = {0};
  const PictureBatches cropped(set, Compose().then(Resize(256)).then(CenterCrop(224)));
  EXPECT_EQ(cropped.make(0, one).data.sizes(), (std::vector<std::int64_t>{1, 3, 224, 224}));
  const PictureBatches whole(set, Compose().then(Resize(256)));
  EXPECT_EQ(usage_error([&] { whole.make(0, one); }),
            "sample 0 ('" + path +
                "'): resize: a picture of 30000x1 to 7680000x256, at most 178956970 pixels are made; "
                "choose a smaller size or crop it");
}

TEST(PictureBatches, EraseWhatTheStreamBehindTheTransformsDraws) {
  const RandomErasingOptions erasing{.p = 1, .value = {7}};
  const PictureBatches plain(colours(), augmentation()), erased(colours(), augmentation(), {.erasing = erasing});
  const std::vector<std::int64_t> one = {4};
  base::RandomStream random = transform_stream({.epoch = 2, .index = 4}, 2);
  ASSERT_TRUE(happens(1, random));
  const CropBox box = RandomErasing(erasing).choose({16, 16}, random).value();
  at::Tensor expected = plain.make(2, one).data;
  expected.slice(2, box.top, box.top + box.size.height).slice(3, box.left, box.left + box.size.width).fill_(7);
  EXPECT_TRUE(at::equal(erased.make(2, one).data, expected));
}

TEST(PictureBatches, HoldTheCropsOfEachSampleSideBySide) {
  const auto set = colours();
  const std::vector<std::int64_t> indices = {3, 8};
  for (const auto layout : {PixelLayout::planes, PixelLayout::channels_last}) {
    const NormalizeOptions normalize{.layout = layout};
    const PictureBatches batches(set, Compose(), {.normalize = normalize, .crops = TenCrop({8, 6})});
    const Batch batch = batches.make(0, indices);
    ASSERT_EQ(batch.data.sizes(), (std::vector<std::int64_t>{2, 10, 3, 8, 6}));
    EXPECT_EQ(batch.target.sizes(), (std::vector<std::int64_t>{2}));
    const PictureBatches whole(set, Compose(), {.normalize = normalize});
    const at::Tensor pictures = whole.make(0, indices).data;
    const auto part = [](const at::Tensor& from, std::int64_t top, std::int64_t left) {
      return from.slice(2, top, top + 8).slice(3, left, left + 6);
    };
    const at::Tensor mirrored = pictures.flip({3});
    EXPECT_TRUE(at::equal(batch.data.select(1, 0), part(pictures, 0, 0)));
    EXPECT_TRUE(at::equal(batch.data.select(1, 1), part(pictures, 0, 10)));
    EXPECT_TRUE(at::equal(batch.data.select(1, 2), part(pictures, 8, 0)));
    EXPECT_TRUE(at::equal(batch.data.select(1, 3), part(pictures, 8, 10)));
    EXPECT_TRUE(at::equal(batch.data.select(1, 4), part(pictures, 4, 5)));
    EXPECT_TRUE(at::equal(batch.data.select(1, 5), part(mirrored, 0, 0)));
    EXPECT_TRUE(at::equal(batch.data.select(1, 9), part(mirrored, 4, 5)));
  }
  EXPECT_EQ(usage_error([&] { PictureBatches(set, Compose(), {.crops = FiveCrop(17)}).make(0, indices); }),
            "sample 3: FiveCrop: 17x17 out of a picture of 16x16; choose a smaller crop or resize the picture before");
}

TEST(PictureBatches, AreTheSameForAnyNumberOfWorkers) {
  const auto batches = std::make_shared<PictureBatches>(colours(), augmentation());
  const BatchSource source = [batches](std::int64_t number) {
    const std::vector<std::int64_t> indices = {number % kCount, (number * 5 + 1) % kCount};
    return batches->make(std::uint64_t(number / kCount), indices);
  };
  Loader one(source, 0, 40, {.workers = 1}), four(source, 0, 40, {.workers = 4, .prefetch = 6});
  while (const std::optional<Batch> a = one.next()) {
    const std::optional<Batch> b = four.next();
    ASSERT_TRUE(b);
    EXPECT_TRUE(at::equal(a->data, b->data));
    EXPECT_TRUE(at::equal(a->target, b->target));
  }
  EXPECT_FALSE(four.next());
}

// Two sizes, and a sample that cannot be read.
class Mixed : public PictureSet {
 public:
  std::int64_t size() const override { return 3; }
  Sample get(std::int64_t index) const override {
    if (index == 2) throw UsageError("'x.jpg': truncated");
    return {Picture(Image(4, 4 + int(index), 1)), 0};
  }
  const std::vector<std::string>& classes() const override { return classes_; }

 private:
  std::vector<std::string> classes_ = {"only"};
};

TEST(PictureBatches, NameTheSampleThatDoesNotFit) {
  const PictureBatches batches(std::make_shared<Mixed>(), Compose());
  const std::vector<std::int64_t> sizes = {0, 1}, damaged = {0, 2};
  EXPECT_EQ(usage_error([&] { batches.make(0, sizes); }),
            "sample 1 is 4x5 with 1 channel, sample 0 of the batch 4x4 with 1 channel: a transform to one size is "
            "missing");
  EXPECT_EQ(usage_error([&] { batches.make(0, damaged); }), "sample 2: 'x.jpg': truncated");
}

// Notes what it is told and asked.
class Noting : public PictureSet {
 public:
  explicit Noting(std::string& seen) : seen_(seen) {}
  std::int64_t size() const override { return 100; }
  Sample get(std::int64_t index) const override {
    seen_ += " " + std::to_string(index);
    return {Picture(Image(1, 1, 1)), 0};
  }
  void expect(std::int64_t index) const override { seen_ += " (" + std::to_string(index) + ")"; }
  const std::vector<std::string>& classes() const override { return classes_; }

 private:
  std::string& seen_;
  std::vector<std::string> classes_ = {"only"};
};

TEST(PictureBatches, TellTheSetOfSamplesSomeAhead) {
  std::string seen;
  const PictureBatches batches(std::make_shared<Noting>(seen), Compose(), {.repetitions = 2});
  const std::vector<std::int64_t> indices = {9, 8, 7, 6, 5, 104};
  batches.make(0, indices);
  EXPECT_EQ(seen, " (5) 9 (4) 8 7 6 5 4");
}

TEST(PictureBatches, AFileRemovedInMidEpochIsNamedOnceByTheLoader) {
  const testing::ScratchFolder folder;
  const testing::Bytes png = testing::png_file(testing::picture(4, 4), false);
  for (int i = 0; i < 8; ++i) folder.write("only/" + std::to_string(i) + ".png", {png.begin(), png.end()});
  const auto batches = std::make_shared<PictureBatches>(std::make_shared<ImageFolder>(folder.path()), Compose());
  const BatchSource source = [batches](std::int64_t number) {
    const std::vector<std::int64_t> indices = {2 * number, 2 * number + 1};
    return batches->make(0, indices);
  };
  Loader loader(source, 0, 4, {.prefetch = 1});
  ASSERT_TRUE(loader.next());
  std::filesystem::remove(folder.file("only/7.png"));
  ASSERT_TRUE(loader.next());
  ASSERT_TRUE(loader.next());
  EXPECT_EQ(usage_error([&] { loader.next(); }),
            "sample 7: cannot open '" + folder.file("only/7.png") + "': No such file or directory");
  EXPECT_THROW(loader.next(), Error);
  EXPECT_GT(loader.statistics().workers[0].decode_seconds, 0);
}

// A set whose files exist in name only.
class Failing : public PictureSet {
 public:
  std::int64_t size() const override { return 3; }
  Sample get(std::int64_t index) const override {
    if (index == 0) throw std::runtime_error("no driver");
    if (index == 1) throw std::bad_alloc();
    return {Picture(Image(2, 2, 3)), 0};
  }
  std::string file_of(std::int64_t index) const override { return "/set/" + std::to_string(index); }
  const std::vector<std::string>& classes() const override { return classes_; }

 private:
  std::vector<std::string> classes_ = {"one"};
};

TEST(PictureBatches, NameSampleAndFileOfWhateverIsThrown) {
  const PictureBatches batches(std::make_shared<Failing>(), Compose().then(RandomCrop(4)));
  const auto message = [&](std::int64_t index) -> std::string {
    try {
      batches.make(0, {&index, 1});
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(message(0), "sample 0 ('/set/0'): no driver");
  EXPECT_EQ(message(1), "sample 1 ('/set/1'): not enough memory for it");
  EXPECT_EQ(message(2).rfind("sample 2 ('/set/2'): RandomCrop: ", 0), 0u);
}

TEST(PictureBatches, OfNoSamplesAreEmpty) {
  const Batch batch = PictureBatches(colours(), Compose()).make(0, {});
  EXPECT_EQ(batch.data.numel(), 0);
  EXPECT_EQ(batch.target.numel(), 0);
}

}  // namespace
}  // namespace lockstep::data
