#include "lockstep/data/cached_pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/geometry.h"
#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using namespace testing;

// Makes a picture of (8 + index) x 8 pixels each time it is asked, and counts how often.
class Made : public PictureSet {
 public:
  explicit Made(std::int64_t size) : asked_(std::size_t(size)) {}
  std::int64_t size() const override { return std::int64_t(asked_.size()); }
  Sample get(std::int64_t index) const override {
    ++asked_[std::size_t(index)];
    if (index == damaged) throw UsageError("'x.jpg': truncated");
    return {Picture(picture(8 + int(index), 8)), index % 3};
  }
  const std::vector<std::string>& classes() const override { return classes_; }

  int asked(std::int64_t index) const { return asked_[std::size_t(index)]; }
  static std::size_t bytes(std::int64_t index) { return std::size_t(8 + index) * 8 * 3; }

  std::int64_t damaged = -1;

 private:
  mutable std::vector<std::atomic<int>> asked_;
  std::vector<std::string> classes_ = {"a", "b", "c"};
};

constexpr std::size_t kPlenty = std::size_t(1) << 30;

TEST(CachedPictures, ReadEachSampleOnce) {
  const auto made = std::make_shared<Made>(5);
  const CachedPictures cached(made, kPlenty);
  EXPECT_EQ(cached.size(), 5);
  EXPECT_EQ(cached.classes(), made->classes());
  std::size_t bytes = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (std::int64_t index = 0; index < 5; ++index) {
      Sample sample = cached.get(index);
      EXPECT_EQ(sample.label, index % 3);
      EXPECT_TRUE(same_pixels(sample.picture, picture(8 + int(index), 8)));
      EXPECT_EQ(made->asked(index), 1);
      bytes += epoch == 0 ? Made::bytes(index) : 0;
    }
  }
  const CacheStatistics statistics = cached.statistics();
  EXPECT_EQ(statistics.hits, 10);
  EXPECT_EQ(statistics.misses, 5);
  EXPECT_EQ(statistics.pictures, 5);
  EXPECT_EQ(statistics.bytes, bytes);
}

TEST(CachedPictures, KeepWhatTheyHaveWhenFull) {
  const auto made = std::make_shared<Made>(4);
  const CachedPictures cached(made, Made::bytes(3) + Made::bytes(0) + 1);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const std::int64_t index : {3, 2, 1, 0}) cached.get(index);
  }
  EXPECT_EQ(made->asked(3), 1);
  EXPECT_EQ(made->asked(2), 3);
  EXPECT_EQ(made->asked(1), 3);
  EXPECT_EQ(made->asked(0), 1) << "smaller, so there is room";
  EXPECT_EQ(cached.statistics().pictures, 2);
  EXPECT_EQ(cached.statistics().bytes, Made::bytes(3) + Made::bytes(0));
  const CachedPictures none(made, 0);
  none.get(1);
  none.get(1);
  EXPECT_EQ(none.statistics().misses, 2);
}

TEST(CachedPictures, AreHandedOutWithoutACopyAndOutliveTheCache) {
  const auto made = std::make_shared<Made>(2);
  Sample first, second;
  {
    const CachedPictures cached(made, kPlenty);
    first = cached.get(1);
    second = cached.get(1);
  }
  EXPECT_EQ(first.picture.window().pixels, second.picture.window().pixels);
  EXPECT_TRUE(same_pixels(second.picture, picture(9, 8)));
}

TEST(CachedPictures, DoNotChangeWithThePicturesThatTheyGave) {
  const CachedPictures cached(std::make_shared<Made>(3), kPlenty);
  const Compose transforms = Compose().then(RandomCrop(6)).then(RandomHorizontalFlip(1));
  Sample changed = cached.get(2);
  transforms.apply(changed.picture, {.index = 2});
  EXPECT_FALSE(pixels_of(changed.picture).empty());
  Sample sample = cached.get(2);
  EXPECT_FALSE(sample.picture.mirrored());
  EXPECT_TRUE(same_pixels(sample.picture, picture(10, 8)));
}

TEST(CachedPictures, LentPixelsCostNothing) {
  const auto memory = std::make_shared<MemoryPictures>(
      MemoryPictures::Content{.size = {1, 2}, .channels = 1, .pixels = {1, 2}, .labels = {0}, .classes = {"a"}});
  const CachedPictures cached(memory, 0);
  cached.get(0);
  EXPECT_EQ(cached.get(0).picture.window().pixels, memory->get(0).picture.window().pixels);
  EXPECT_EQ(cached.statistics().bytes, 0u);
  EXPECT_EQ(cached.statistics().hits, 1);
}

TEST(CachedPictures, ThrowWhatIsWrongEachTime) {
  const auto made = std::make_shared<Made>(3);
  made->damaged = 1;
  const CachedPictures cached(made, kPlenty);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(usage_error([&] { cached.get(1); }), "'x.jpg': truncated");
  EXPECT_EQ(made->asked(1), 2);
  EXPECT_EQ(cached.statistics().pictures, 0);
  EXPECT_EQ(usage_error([&] { cached.get(3); }), "sample 3 asked for, the set has 3");
  usage_error([&] { cached.get(-1); });
}

// All threads ask for all samples at about the same time, with room for some: races for a place and for room.
TEST(CachedPictures, ServeManyThreads) {
  constexpr std::int64_t kSize = 40;
  constexpr int kThreads = 8, kEpochs = 5;
  std::size_t limit = 0;
  for (std::int64_t index = 0; index < kSize; index += 2) limit += Made::bytes(index);
  const auto made = std::make_shared<Made>(kSize);
  const CachedPictures cached(made, limit);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t i = 0; i < kSize * kEpochs; ++i) {
        const std::int64_t index = (i * 7 + (i / kSize) * t) % kSize;
        Sample sample = cached.get(index);
        wrong += sample.label != index % 3 || !same_pixels(sample.picture, picture(8 + int(index), 8));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  const CacheStatistics statistics = cached.statistics();
  EXPECT_EQ(statistics.hits + statistics.misses, kThreads * kEpochs * kSize);
  EXPECT_LE(statistics.bytes, limit);
  std::int64_t asked = 0;
  for (std::int64_t index = 0; index < kSize; ++index) asked += made->asked(index);
  EXPECT_EQ(asked, statistics.misses);
  // Once more in peace, since room that was taken in vain came back; then what is kept can be told from outside.
  for (std::int64_t index = 0; index < kSize; ++index) cached.get(index);
  std::size_t kept = 0;
  std::int64_t pictures = 0;
  for (std::int64_t index = 0; index < kSize; ++index) {
    const int before = made->asked(index);
    cached.get(index);
    if (made->asked(index) > before) continue;
    kept += Made::bytes(index);
    ++pictures;
  }
  EXPECT_EQ(cached.statistics().bytes, kept) << "room taken by losers of races was given back";
  EXPECT_EQ(cached.statistics().pictures, pictures);
}

}  // namespace
}  // namespace lockstep::data
