#include "lockstep/data/readers/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>

#include "tests/support/gzip.h"
#include "tests/support/idx_files.h"
#include "tests/support/real_data.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::gzip;
using ::testing::HasSubstr;
using testing::idx;
using testing::ScratchFolder;
using testing::usage_error;
using Labels = std::vector<std::int64_t>;

std::string pictures(std::uint32_t count) { return idx({count, 28, 28}, std::string(count * 784, '\x80')); }

TEST(ReadIdx, PlainAndGzipGiveTheSameBytes) {
  const ScratchFolder folder;
  const std::string content = idx({2, 2, 3}, std::string("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\xff", 12));
  for (const auto& [name, bytes] : {std::pair("a", content), std::pair("a.gz", gzip(content))}) {
    const IdxBytes read = read_idx(folder.write(name, bytes), 3);
    EXPECT_EQ(read.shape, (std::vector<std::int64_t>{2, 2, 3}));
    EXPECT_EQ(read.bytes, (std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255}));
  }
}

TEST(ReadIdx, TruncationAtEveryByteIsOneClearError) {
  const ScratchFolder folder;
  const std::string content = idx({4, 2, 2}, "abcdefghijklmnop");
  const std::string packed = gzip(content);
  for (std::size_t length = 0; length < content.size(); ++length) {
    const std::string path = folder.write("a", content.substr(0, length));
    EXPECT_THAT(usage_error([&] { read_idx(path, 3); }), HasSubstr("'" + path + "': truncated")) << length;
  }
  for (std::size_t length = 0; length < packed.size(); ++length) {
    const std::string path = folder.write("a.gz", packed.substr(0, length));
    EXPECT_THAT(usage_error([&] { read_idx(path, 3); }),
                ::testing::AllOf(HasSubstr("'" + path + "': "), HasSubstr("offset")))
        << length;
  }
}

// A flipped byte may go unnoticed only where gzip's own header does not care (time, system).
TEST(ReadIdx, DamageAtAnyByteOfGzipIsNoticed) {
  const ScratchFolder folder;
  const std::string packed = gzip(idx({4, 2, 2}, "abcdefghijklmnop"));
  for (std::size_t place = 10; place < packed.size(); ++place) {
    std::string damaged = packed;
    damaged[place] = char(damaged[place] ^ 0x55);
    const std::string path = folder.write("a.gz", damaged);
    usage_error([&] { read_idx(path, 3); });
  }
}

TEST(ReadIdx, NamesFileAndOffsetOfEachFault) {
  const ScratchFolder folder;
  const auto message = [&](const std::string& content, const std::string& name = "a") {
    const std::string path = folder.write(name, content);
    std::string text = usage_error([&] { read_idx(path, 3); });
    EXPECT_EQ(text.rfind("'" + path + "': ", 0), 0u) << text;
    return text.substr(std::min(text.size(), path.size() + 4));
  };
  const std::string good = idx({1, 2, 2}, "abcd");
  EXPECT_EQ(message(idx({4}, "abcd")), "magic number 0x00000801 at offset 0, 0x00000803 expected");
  EXPECT_EQ(message("PK\x03\x04 rubbish"), "magic number 0x504b0304 at offset 0, 0x00000803 expected");
  EXPECT_EQ(message(good + "x"), "trailing bytes at offset 20");
  EXPECT_EQ(message(good.substr(0, 10)), "truncated at offset 10, 12 bytes expected");
  EXPECT_EQ(message(good.substr(0, 19)),
            "truncated: the sizes before offset 16 promise 4 bytes, which the file cannot hold");
  EXPECT_EQ(message(idx({0xffffffff, 0xffffffff, 0xffffffff}, "")), "impossible sizes at offset 4");
  EXPECT_EQ(message(gzip(good + "x"), "a.gz"), "trailing bytes at offset 20");
  EXPECT_EQ(message(gzip(idx({1, 2, 3}, "abcd")), "a.gz"), "truncated at offset 20, 22 bytes expected");
  const std::string packed = gzip(good);
  EXPECT_THAT(message(packed + "x", "a.gz"), HasSubstr("trailing bytes after the gzip data at offset"));
  EXPECT_THAT(message(good, "a.gz"), HasSubstr("damaged gzip data (incorrect header check) at offset"));
  EXPECT_THAT(message(packed.substr(0, packed.size() - 1), "a.gz"), HasSubstr("gzip data ends early at offset"));
}

// 4 GiB promised by a file of a few bytes: no memory may be taken for it.
TEST(ReadIdx, BelievesNoSizeThatTheFileCannotHold) {
  const ScratchFolder folder;
  const std::string content = idx({0xffffffff, 28, 28}, "abcd");
  const std::string plain = folder.write("a", content), packed = folder.write("a.gz", gzip(content));
  for (const std::string& path : {plain, packed}) {
    EXPECT_THAT(usage_error([&] { read_idx(path, 3); }), HasSubstr("which the file cannot hold"));
  }
}

// As a packed file may seem to.
class Promising final : public ByteSource {
 public:
  explicit Promising(std::string content) : content_(std::move(content)) {}
  std::size_t read(void* out, std::size_t bytes) override {
    const std::size_t got = content_.copy(static_cast<char*>(out), bytes, place_);
    place_ += got;
    return got;
  }
  void seek(std::uint64_t offset) override { place_ = offset; }
  std::uint64_t limit() const override { return std::uint64_t(1) << 62; }
  const std::string& path() const override { return path_; }

 private:
  std::string content_, path_ = "promises";
  std::size_t place_ = 0;
};

TEST(ReadIdx, TakesMemoryAsTheBytesCome) {
  Promising source(idx({1 << 20, 1 << 10, 1 << 10}, "abc"));
  EXPECT_EQ(testing::usage_error([&] { read_idx(source, 3); }),
            "'promises': truncated at offset 19, 1099511627792 bytes expected");
}

TEST(ReadIdx, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  const std::string missing = folder.file("missing");
  EXPECT_EQ(usage_error([&] { read_idx(missing, 1); }), "cannot open '" + missing + "': No such file or directory");
  EXPECT_THAT(usage_error([&] { read_idx(folder.path(), 1); }), HasSubstr("not a regular file"));
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(usage_error([&] { read_idx(pipe, 1); }), HasSubstr("not a regular file"));
}

TEST(LoadMnist, FindsPlainPackedAndTorchvisionFolders) {
  const std::string labels = idx({3}, std::string("\x00\x09\x05", 3));
  for (const std::string place : {"", "MNIST/raw/"}) {
    const ScratchFolder folder;
    folder.write(place + "train-images-idx3-ubyte", pictures(3));
    folder.write(place + "train-labels-idx1-ubyte.gz", gzip(labels));
    const MemoryPictures set = load_mnist(folder.path(), Split::train);
    EXPECT_EQ(set.size(), 3);
    EXPECT_EQ(set.classes().size(), 10u);
    EXPECT_EQ(set.classes().back(), "9");
    EXPECT_EQ(set.content().size, (Size{28, 28}));
    EXPECT_EQ(set.content().channels, 1);
    EXPECT_EQ(set.content().labels, (Labels{0, 9, 5}));
    EXPECT_THAT(usage_error([&] { load_mnist(folder.path(), Split::test); }), HasSubstr("'t10k-images-idx3-ubyte'"));
  }
}

TEST(LoadMnist, SaysWhichNamesWereLookedFor) {
  EXPECT_EQ(usage_error([] { load_mnist("/nowhere", Split::train); }),
            "no MNIST file 'train-images-idx3-ubyte' or 'train-images-idx3-ubyte.gz' in '/nowhere' or "
            "'/nowhere/MNIST/raw'; lockstep train --dataset mnist --download brings them");
}

TEST(LoadMnist, ChecksThatTheTwoFilesBelongTogether) {
  const ScratchFolder folder;
  const std::string images = folder.write("train-images-idx3-ubyte", pictures(3));
  const std::string labels = folder.write("train-labels-idx1-ubyte", idx({2}, std::string(2, '\x01')));
  const auto load = [&] { load_mnist(folder.path(), Split::train); };
  EXPECT_EQ(usage_error(load), "'" + labels + "': 2 labels at offset 4, but '" + images + "' has 3 images");
  folder.write("train-labels-idx1-ubyte", idx({4}, std::string(4, '\x01')));
  EXPECT_EQ(usage_error(load), "'" + labels + "': 4 labels at offset 4, but '" + images + "' has 3 images");
  folder.write("train-labels-idx1-ubyte", idx({3}, "\x01\x02\x0a"));
  EXPECT_EQ(usage_error(load), "'" + labels + "': label 10 of sample 2 at offset 10, 0 ... 9 expected");
  folder.write("train-images-idx3-ubyte", idx({3, 14, 56}, std::string(3 * 784, 'x')));
  EXPECT_EQ(usage_error(load), "'" + images + "': images of 14x56 at offset 8, 28x28 expected");
  folder.write("train-images-idx3-ubyte", pictures(0));
  EXPECT_EQ(usage_error(load), "'" + images + "': no images (count 0 at offset 4)");
}

TEST(LoadMnist, ReadsTheRealSet) {
  if (const std::string why = testing::missing_data(testing::mnist_files()); !why.empty()) GTEST_SKIP() << why;
  const std::string folder = testing::real_data() / "mnist";
  const MemoryPictures train = load_mnist(folder, Split::train), test = load_mnist(folder, Split::test);
  EXPECT_EQ(train.size(), 60000);
  EXPECT_EQ(test.size(), 10000);
  double sum = 0, squares = 0;
  for (const std::uint8_t pixel : train.content().pixels) {
    sum += pixel / 255.0;
    squares += pixel / 255.0 * (pixel / 255.0);
  }
  const double count = double(train.content().pixels.size()), mean = sum / count;
  EXPECT_NEAR(mean, 0.13066, 1e-5);
  EXPECT_NEAR(std::sqrt(squares / count - mean * mean), 0.30811, 1e-5);
  const auto first_labels = [](const MemoryPictures& set) {
    return Labels(set.content().labels.begin(), set.content().labels.begin() + 5);
  };
  EXPECT_EQ(first_labels(train), (Labels{5, 0, 4, 1, 9}));
  EXPECT_EQ(first_labels(test), (Labels{7, 2, 1, 0, 4}));
}

}  // namespace
}  // namespace lockstep::data
