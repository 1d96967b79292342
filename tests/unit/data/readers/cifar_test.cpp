#include "lockstep/data/readers/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/pixels.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;
using testing::pixels_of;
using testing::ScratchFolder;
using testing::usage_error;

// Red counts from `seed`, green is twice that, blue 7.
std::string planes(int seed) {
  std::string bytes;
  for (int i = 0; i < 1024; ++i) bytes += char(seed + i);
  for (int i = 0; i < 1024; ++i) bytes += char(2 * (seed + i));
  return bytes + std::string(1024, '\x07');
}

std::string numbered_names(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "name" + std::to_string(i) + "\n";
  return text + "\n";  // the original files end in an empty line
}

void expect_picture(Sample sample, int seed, std::int64_t label) {
  EXPECT_EQ(sample.label, label);
  EXPECT_EQ(sample.picture.size(), (Size{32, 32}));
  const std::vector<int> pixels = pixels_of(copy_of(sample.picture.pixels()));
  for (int i = 0; i < 1024; ++i) {
    ASSERT_EQ(pixels[std::size_t(3 * i)], (seed + i) & 255);
    ASSERT_EQ(pixels[std::size_t(3 * i + 1)], (2 * (seed + i)) & 255);
    ASSERT_EQ(pixels[std::size_t(3 * i + 2)], 7);
  }
}

TEST(LoadCifar10, ReadsItsBatchesInOrder) {
  const ScratchFolder folder;
  for (int batch = 1; batch <= 5; ++batch) {
    folder.write("cifar-10-batches-bin/data_batch_" + std::to_string(batch) + ".bin",
                 char(batch) + planes(batch) + char(9) + planes(10 * batch));
  }
  folder.write("cifar-10-batches-bin/test_batch.bin", char(3) + planes(100));
  const MemoryPictures train = load_cifar10(folder.path(), Split::train);
  ASSERT_EQ(train.size(), 10);
  EXPECT_EQ(train.classes().size(), 10u);
  EXPECT_EQ(train.classes()[3], "cat");
  for (int batch = 1; batch <= 5; ++batch) {
    expect_picture(train.get(2 * batch - 2), batch, batch);
    expect_picture(train.get(2 * batch - 1), 10 * batch, 9);
  }
  const MemoryPictures test = load_cifar10(folder.file("cifar-10-batches-bin"), Split::test);
  ASSERT_EQ(test.size(), 1);
  expect_picture(test.get(0), 100, 3);
}

TEST(LoadCifar100, HasFineAndCoarseLabels) {
  const ScratchFolder folder;
  folder.write("train.bin", char(19) + (char(99) + planes(1)) + char(0) + (char(5) + planes(2)));
  folder.write("fine_label_names.txt", numbered_names(100));
  folder.write("coarse_label_names.txt", numbered_names(20));
  const MemoryPictures fine = load_cifar100(folder.path(), Split::train);
  EXPECT_EQ(fine.classes().size(), 100u);
  EXPECT_EQ(fine.classes()[99], "name99");
  expect_picture(fine.get(0), 1, 99);
  expect_picture(fine.get(1), 2, 5);
  const MemoryPictures coarse = load_cifar100(folder.path(), Split::train, CifarLabels::coarse);
  EXPECT_EQ(coarse.classes().size(), 20u);
  expect_picture(coarse.get(0), 1, 19);
}

TEST(LoadCifar, DamageIsOneClearError) {
  const ScratchFolder folder;
  EXPECT_EQ(usage_error([&] { load_cifar10(folder.path(), Split::test); }),
            "no CIFAR file 'test_batch.bin' in '" + folder.path() + "' or '" + folder.path() +
                "/cifar-10-batches-bin'; lockstep train --dataset cifar10 --download brings them");
  const std::string file = folder.file("test_batch.bin");
  for (const std::size_t length : {std::size_t(0), std::size_t(1), std::size_t(3072), std::size_t(3074)}) {
    folder.write("test_batch.bin", (char(3) + planes(0) + char(1)).substr(0, length));
    EXPECT_EQ(usage_error([&] { load_cifar10(folder.path(), Split::test); }),
              "'" + file + "': " + std::to_string(length) +
                  " bytes, records of 3073 expected: truncated, or not the binary version");
  }
  folder.write("test_batch.bin", char(3) + planes(0) + char(10) + planes(0));
  EXPECT_EQ(usage_error([&] { load_cifar10(folder.path(), Split::test); }),
            "'" + file + "': label 10 at offset 3073, 0 ... 9 expected");
  folder.write("test_batch.bin", "");
  std::filesystem::resize_file(file, 1'000'000'000'000);
  EXPECT_EQ(usage_error([&] { load_cifar10(folder.path(), Split::test); }),
            "'" + file + "': 1000000000000 bytes, at most 153650000 are read");
  folder.write("data_batch_1.bin", char(3) + planes(0));
  EXPECT_THAT(usage_error([&] { load_cifar10(folder.path(), Split::train); }), HasSubstr("data_batch_2.bin'"));
  folder.write("test.bin", char(3) + (char(3) + planes(0)));
  EXPECT_THAT(usage_error([&] { load_cifar100(folder.path(), Split::test); }), HasSubstr("fine_label_names.txt'"));
  const std::string names = folder.write("fine_label_names.txt", numbered_names(99));
  EXPECT_EQ(usage_error([&] { load_cifar100(folder.path(), Split::test); }), "'" + names + "': 99 names, 100 expected");
  folder.write("fine_label_names.txt", "name98\n" + numbered_names(99));
  EXPECT_EQ(usage_error([&] { load_cifar100(folder.path(), Split::test); }),
            "'" + names + "': 'name98' is the name of two classes, 0 and 99");
}

}  // namespace
}  // namespace lockstep::data
