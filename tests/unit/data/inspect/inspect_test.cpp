#include "lockstep/data/inspect/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/idx_files.h"
#include "tests/support/image_files.h"
#include "tests/support/real_data.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::idx;
using ::testing::IsEmpty;
using testing::jpeg_file;
using testing::missing_data;
using testing::mnist_files;
using ::testing::Not;
using testing::picture;
using testing::png_file;
using testing::real_data;
using testing::ScratchFolder;
using ::testing::StartsWith;
using testing::usage_error;

std::string text(const testing::Bytes& bytes) { return {bytes.begin(), bytes.end()}; }
std::string png(int height, int width) { return text(png_file(picture(height, width), false)); }
std::string jpeg(int height, int width) { return text(jpeg_file(picture(height, width))); }

std::vector<std::string> counts(const SetPart& part) {
  std::vector<std::string> words;
  for (const ClassCount& each : part.classes) words.push_back(each.name + " " + std::to_string(each.pictures));
  return words;
}

// "name: reason", the name below the folder.
std::vector<std::string> faults(const Report& report, const ScratchFolder& folder) {
  std::vector<std::string> words;
  for (const Fault& fault : report.faults) {
    EXPECT_TRUE(fault.path.starts_with(folder.path())) << fault.path;
    words.push_back(fault.path.substr(std::min(fault.path.size(), folder.path().size() + 1)) + ": " + fault.reason);
  }
  return words;
}

TEST(InspectImageFolder, CountsClassesSizesAndKinds) {
  const ScratchFolder folder;
  folder.write("cat/1.png", png(10, 20));
  folder.write("cat/deep/2.jpg", jpeg(30, 30));
  folder.write("dog/1.JPG", jpeg(8, 8));
  folder.write("dog/notes.txt", "no picture");
  folder.write("README", "no class");
  const Report report = inspect(folder.path());
  EXPECT_EQ(report.kind, "ImageFolder");
  ASSERT_EQ(report.parts.size(), 1u);
  const SetPart& part = report.parts[0];
  EXPECT_EQ(part.name, "");
  EXPECT_EQ(part.pictures, 3);
  EXPECT_THAT(counts(part), ElementsAre("cat 2", "dog 1"));
  EXPECT_EQ(part.sizes.size(), 3u);
  EXPECT_EQ(median(part.sizes), (Size{10, 20}));
  EXPECT_EQ(part.kinds, (std::map<std::string, std::int64_t>{{"JPEG colour", 2}, {"PNG RGB", 1}}));
  EXPECT_EQ(part.bytes, png(10, 20).size() + jpeg(30, 30).size() + jpeg(8, 8).size());
  EXPECT_THAT(report.faults, IsEmpty());
}

TEST(InspectImageFolder, TakesWhatTheDecoderTakes) {
  const ScratchFolder folder;
  for (const auto& [how, file] : testing::untidy_jpegs(jpeg_file(picture(20, 30)))) {
    folder.write("cat/" + how + ".jpg", {file.begin(), file.end()});
  }
  const Report report = inspect(folder.path());
  EXPECT_EQ(report.parts.at(0).pictures, 5);
  EXPECT_EQ(report.parts[0].sizes.size(), 1u);
  EXPECT_EQ(median(report.parts[0].sizes), (Size{20, 30}));
  EXPECT_THAT(report.faults, IsEmpty());
}

TEST(InspectImageFolder, KnowsParts) {
  const ScratchFolder folder;
  for (const char* name : {"train/a/1.png", "train/b/1.png", "train/b/2.png", "val/a/1.png", "val/b/1.png"}) {
    folder.write(name, png(4, 4));
  }
  folder.write("SHA256SUMS", "");
  const Report report = inspect(folder.path());
  ASSERT_EQ(report.parts.size(), 2u);
  EXPECT_EQ(report.parts[0].name, "train");
  EXPECT_THAT(counts(report.parts[0]), ElementsAre("a 1", "b 2"));
  EXPECT_EQ(report.parts[1].name, "val");
  EXPECT_THAT(counts(report.parts[1]), ElementsAre("a 1", "b 1"));
  EXPECT_THAT(report.faults, IsEmpty());
}

TEST(InspectImageFolder, OnlyNamesWhatLiesBesideTheParts) {
  const ScratchFolder folder;
  for (const char* name : {"train/a/1.png", "val/a/1.png", "docs/cover.png"}) folder.write(name, png(4, 4));
  folder.write("index/train.index", "");
  const Report report = inspect(folder.path());
  ASSERT_EQ(report.parts.size(), 2u);
  EXPECT_EQ(report.parts[1].name, "val");
  EXPECT_THAT(report.faults, IsEmpty());
  EXPECT_THAT(report.notes, ElementsAre("not looked at: docs, index"));
}

TEST(InspectImageFolder, SaysWhatATrainAloneIsGoodFor) {
  const ScratchFolder folder;
  folder.write("train/a/1.png", png(4, 4));
  const Report report = inspect(folder.path());
  EXPECT_THAT(counts(report.parts.at(0)), ElementsAre("a 1"));
  EXPECT_THAT(report.faults, IsEmpty());
  EXPECT_THAT(report.notes, ElementsAre("no folder 'val' or 'test': training needs --no-eval"));
}

TEST(InspectImageFolder, SaysThatThereIsNoTrain) {
  const ScratchFolder folder;
  for (const char* name : {"val/a/1.png", "test/a/1.png"}) folder.write(name, png(4, 4));
  const Report report = inspect(folder.path());
  EXPECT_EQ(report.parts.size(), 2u);
  EXPECT_THAT(report.notes, ElementsAre("no folder 'train': training needs one"));
}

TEST(InspectImageFolder, ATrainWithoutClassFoldersIsAFault) {
  const ScratchFolder folder;
  folder.write("train/1.png", png(4, 4));
  EXPECT_THAT(faults(inspect(folder.path()), folder), ElementsAre("train: no class folder in it"));
  folder.write("docs/notes.txt", "");
  EXPECT_THAT(faults(inspect(folder.path()), folder), ElementsAre("train: no class folder in it"));
  folder.write("val/a/1.png", png(4, 4));
  EXPECT_THAT(faults(inspect(folder.path()), folder), ElementsAre("train: no class folder in it"));
}

TEST(InspectImageFolder, AValWithoutClassFoldersIsAFault) {
  const ScratchFolder folder;
  folder.write("train/a/1.png", png(4, 4));
  folder.write("val/1.png", png(4, 4));
  EXPECT_THAT(faults(inspect(folder.path()), folder), ElementsAre("val: no class folder in it"));
}

TEST(InspectImageFolder, TakesTrainForAClassBesideOthers) {
  const ScratchFolder folder;
  folder.write("car/1.png", png(4, 4));
  folder.write("train/1.png", png(4, 4));
  const Report report = inspect(folder.path());
  ASSERT_EQ(report.parts.size(), 1u);
  EXPECT_THAT(counts(report.parts[0]), ElementsAre("car 1", "train 1"));
  EXPECT_THAT(report.notes, IsEmpty());
}

TEST(InspectImageFolder, NamesEveryDamagedFile) {
  const ScratchFolder folder;
  const std::string whole = jpeg(40, 40);
  folder.write("a/cut.jpg", whole.substr(0, whole.size() - 40));
  folder.write("a/good.jpg", whole);
  folder.write("a/nothing.png", "");
  folder.write("b/bitmap.bmp", "BM");
  folder.write("b/good.png", png(4, 4));
  folder.write("b/text.jpg", "no picture");
  fs::create_directory_symlink(folder.file("nowhere"), folder.file("b/lost.png"));
  for (const int threads : {1, 3}) {
    const Report report = inspect(folder.path(), {.threads = threads});
    EXPECT_THAT(faults(report, folder), ElementsAre(StartsWith("a/cut.jpg: truncated: JPEG data end early at offset "),
                                                    "a/nothing.png: empty file, a JPEG or PNG image expected",
                                                    "b/bitmap.bmp: only JPEG and PNG can be read",
                                                    "b/lost.png: cannot open: No such file or directory",
                                                    "b/text.jpg: neither JPEG nor PNG by its first bytes"));
    EXPECT_THAT(counts(report.parts[0]), ElementsAre("a 3", "b 3"));
  }
}

TEST(InspectImageFolder, QuickReadsOnlyHeaders) {
  const ScratchFolder folder;
  const std::string whole = jpeg(40, 40);
  folder.write("a/cut.jpg", whole.substr(0, whole.size() - 40));
  folder.write("a/text.jpg", "no picture");
  const Report report = inspect(folder.path(), {.quick = true});
  EXPECT_TRUE(report.headers_only);
  EXPECT_THAT(faults(report, folder), ElementsAre("a/text.jpg: neither JPEG nor PNG by its first bytes"));
  EXPECT_EQ(report.parts[0].sizes.begin()->first, (Size{40, 40}));
}

TEST(InspectImageFolder, NamesEmptyClassesAndPartsThatDiffer) {
  const ScratchFolder folder;
  folder.write("train/a/1.png", png(4, 4));
  folder.write("train/b/1.png", png(4, 4));
  folder.write("val/a/notes.txt", "");
  folder.write("val/c/1.png", png(4, 4));
  EXPECT_THAT(faults(inspect(folder.path()), folder),
              ElementsAre("val/a: empty class: no picture (.jpg, .jpeg, .png) in it",
                          "val: no class 'b', which train has", "val: class 'c', which train has not"));
}

TEST(InspectImageFolder, SurvivesALinkBackIntoItself) {
  const ScratchFolder folder;
  folder.write("a/1.png", png(4, 4));
  folder.write("b/1.png", png(4, 4));
  fs::create_directory_symlink(folder.path(), folder.file("b/back"));
  EXPECT_THAT(faults(inspect(folder.path()), folder), ElementsAre(HasSubstr("a link back to")));
}

std::string records(std::size_t label_bytes, const std::string& labels) {
  std::string bytes;
  for (const char label : labels) bytes += std::string(label_bytes, label) + std::string(3072, 'p');
  return bytes;
}

const std::string kAllTen = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

TEST(InspectCifar, CountsCifar10AndNamesItsDamagedFiles) {
  const ScratchFolder folder;
  const std::string place = "cifar-10-batches-bin/";
  for (int i = 1; i <= 4; ++i) {
    folder.write(place + "data_batch_" + std::to_string(i) + ".bin", records(1, kAllTen));
  }
  folder.write(place + "test_batch.bin", records(1, kAllTen));
  folder.write(place + "data_batch_2.bin", "short");
  folder.write(place + "data_batch_3.bin", records(1, std::string(1, char(10))));
  const Report report = inspect(folder.path());
  EXPECT_EQ(report.kind, "CIFAR-10 (binary)");
  EXPECT_EQ(report.parts[0].pictures, 20);
  EXPECT_EQ(counts(report.parts[1])[3], "cat 1");
  EXPECT_EQ(report.parts[1].sizes.begin()->first, (Size{32, 32}));
  EXPECT_THAT(faults(report, folder),
              ElementsAre(HasSubstr(place + "data_batch_2.bin: 5 bytes, records of 3073 expected"),
                          HasSubstr(place + "data_batch_3.bin: label 10 at offset 0"),
                          HasSubstr(place + "data_batch_5.bin: cannot open")));
}

TEST(InspectCifar, CountsCifar100) {
  const ScratchFolder folder;
  std::string names;
  for (int i = 0; i < 100; ++i) names += "name" + std::to_string(i) + "\n";
  folder.write("fine_label_names.txt", names);
  folder.write("train.bin", records(2, {7, 7}));
  const Report report = inspect(folder.path());
  EXPECT_EQ(report.kind, "CIFAR-100 (binary), fine labels");
  EXPECT_EQ(counts(report.parts[0])[7], "name7 2");
  EXPECT_THAT(faults(report, folder),
              ElementsAre(AllOf(StartsWith(": empty classes in train: name0, "), EndsWith(" name99")),
                          HasSubstr("no CIFAR file 'test.bin'")));
}

TEST(InspectMnist, CountsAndNamesDamage) {
  const ScratchFolder folder;
  folder.write("train-images-idx3-ubyte", idx({10, 28, 28}, std::string(10 * 784, 'p')));
  folder.write("train-labels-idx1-ubyte", idx({10}, kAllTen));
  folder.write("t10k-images-idx3-ubyte", idx({2, 28, 28}, std::string(2 * 784, 'p')));
  folder.write("t10k-labels-idx1-ubyte", idx({1}, {3}));
  const Report report = inspect(folder.path());
  EXPECT_EQ(report.kind, "MNIST, or a set in its format");
  EXPECT_EQ(report.parts[0].pictures, 10);
  EXPECT_EQ(report.parts[0].kinds.begin()->first, "grey");
  EXPECT_THAT(faults(report, folder), ElementsAre(HasSubstr("t10k-labels-idx1-ubyte: 1 labels at offset 4, but")));
}

TEST(InspectMnist, KnowsTorchvisionsFolders) {
  const ScratchFolder folder;
  folder.write("FashionMNIST/raw/train-images-idx3-ubyte", idx({10, 28, 28}, std::string(10 * 784, 'p')));
  folder.write("FashionMNIST/raw/train-labels-idx1-ubyte", idx({10}, kAllTen));
  const Report report = inspect(folder.path());
  EXPECT_EQ(report.kind, "Fashion-MNIST");
  EXPECT_EQ(counts(report.parts[0])[9], "Ankle boot 1");
  EXPECT_THAT(faults(report, folder), ElementsAre(HasSubstr("no FashionMNIST file 't10k-images-idx3-ubyte'")));
}

TEST(InspectFile, KnowsSingleFiles) {
  const ScratchFolder folder;
  EXPECT_EQ(inspect(folder.write("a.png", png(3, 5))).parts[0].sizes.begin()->first, (Size{3, 5}));
  EXPECT_EQ(inspect(folder.write("no ending", jpeg(3, 5))).parts[0].kinds.begin()->first, "JPEG colour");
  const Report labels = inspect(folder.write("labels", idx({3}, {0, 2, 2})));
  EXPECT_EQ(labels.kind, "IDX, 3 bytes");
  EXPECT_THAT(counts(labels.parts[0]), ElementsAre("0 1", "1 0", "2 2"));
  const Report images = inspect(folder.write("images", idx({2, 3, 4}, std::string(24, 'p'))));
  EXPECT_EQ(images.kind, "IDX, 2x3x4 bytes");
  EXPECT_EQ(images.parts[0].sizes.begin()->first, (Size{3, 4}));
  EXPECT_EQ(inspect(folder.write("data_batch_1.bin", records(1, {3}))).parts[0].pictures, 1);
}

TEST(InspectFile, NamesDamage) {
  const ScratchFolder folder;
  EXPECT_THAT(faults(inspect(folder.write("a.jpg", "")), folder), ElementsAre(HasSubstr("a.jpg: empty file")));
  EXPECT_THAT(faults(inspect(folder.write("images", idx({9, 9, 9}, "short"))), folder),
              ElementsAre(HasSubstr("images: truncated")));
  EXPECT_THAT(faults(inspect(folder.write("test_batch.bin", "short")), folder), ElementsAre(HasSubstr("5 bytes")));
}

TEST(InspectFile, OfHugeContentIsNoFailureOfMemory) {
  const ScratchFolder folder;
  const std::string zeros = folder.write("zeros.jpg", ""), huge = folder.write("huge.png", png(3, 5));
  for (const std::string& path : {zeros, huge}) fs::resize_file(path, std::uintmax_t(1) << 40);
  EXPECT_THAT(faults(inspect(zeros), folder), ElementsAre("zeros.jpg: neither JPEG nor PNG by its first bytes"));
  EXPECT_THAT(faults(inspect(huge), folder), ElementsAre(AllOf(StartsWith("huge.png: "), Not(HasSubstr("bad_alloc")))));
  EXPECT_THAT(inspect(huge, {.quick = true}).faults, IsEmpty());
}

TEST(Inspect, RefusesWhatIsNoSet) {
  const ScratchFolder folder;
  EXPECT_EQ(usage_error([&] { inspect(folder.file("missing")); }),
            "'" + folder.file("missing") + "': No such file or directory");
  EXPECT_THAT(usage_error([&] { inspect("no\nsuch\x1b[2J"); }), StartsWith("'no\\nsuch\\x1b[2J': "));
  EXPECT_THAT(usage_error([&] { inspect(folder.path()); }), HasSubstr("holds no data set: class folders"));
  folder.write("below/notes.txt", "");
  EXPECT_THAT(usage_error([&] { inspect(folder.path()); }), HasSubstr("holds no data set"));
  EXPECT_THAT(usage_error([&] { inspect(folder.file("below/notes.txt")); }), HasSubstr("is no data file"));
  EXPECT_THAT(usage_error([&] { inspect(folder.write("a.gz", "no gzip")); }), HasSubstr("damaged gzip data"));
}

TEST(Inspect, TheRealMnist) {
  if (const std::string why = missing_data(mnist_files()); !why.empty()) GTEST_SKIP() << why;
  const Report mnist = inspect((real_data() / "mnist").string());
  EXPECT_EQ(mnist.parts[0].pictures, 60'000);
  EXPECT_EQ(counts(mnist.parts[1])[9], "9 1009");
  EXPECT_THAT(mnist.faults, IsEmpty());
}

TEST(Inspect, TheRealCifarPictures) {
  if (const std::string why = missing_data({"cifar10-small/train", "cifar10-small/val"}); !why.empty()) {
    GTEST_SKIP() << why;
  }
  const Report cifar = inspect((real_data() / "cifar10-small").string());
  EXPECT_EQ(cifar.parts[0].pictures, 1000);
  EXPECT_EQ(cifar.parts[1].pictures, 200);
  EXPECT_EQ(counts(cifar.parts[0])[0], "airplane 100");
  EXPECT_THAT(cifar.faults, IsEmpty());
}

TEST(Inspect, TheRealFlowers) {
  if (const std::string why = missing_data({"flowers/train", "flowers/val"}); !why.empty()) GTEST_SKIP() << why;
  const Report flowers = inspect((real_data() / "flowers").string(), {.quick = true});
  EXPECT_EQ(flowers.parts[0].sizes.begin()->first, (Size{240, 145}));
  EXPECT_THAT(flowers.faults, IsEmpty());
}

}  // namespace
}  // namespace lockstep::data
