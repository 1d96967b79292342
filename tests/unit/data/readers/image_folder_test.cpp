#include "lockstep/data/readers/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "lockstep/data/codecs/decode.h"
#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::picture;
using testing::same_pixels;
using testing::ScratchFolder;
using testing::usage_error;

std::string png(int side) {
  const testing::Bytes bytes = testing::png_file(picture(side, side), false);
  return {bytes.begin(), bytes.end()};
}

std::vector<std::string> names_of(const ImageFolder& set, const ScratchFolder& folder) {
  std::vector<std::string> names;
  for (const ImageFolder::Entry& entry : set.entries()) {
    names.push_back(std::to_string(entry.label) + " " + entry.path.substr(folder.path().size() + 1));
  }
  return names;
}

TEST(ImageFolder, TheFingerprintTellsSetsApartButNotPlaces) {
  const auto print = [](const std::vector<std::string>& names) {
    const ScratchFolder folder;
    for (const std::string& name : names) folder.write(name, "");
    return ImageFolder(folder.path()).fingerprint();
  };
  const SetFingerprint set = print({"a/1.png", "a/2.png", "b/1.png"});
  EXPECT_EQ(set.samples, 3);
  EXPECT_EQ(print({"a/1.png", "a/2.png", "b/1.png", "b/notes.txt"}), set)
      << "elsewhere, with a file that is none of it";
  EXPECT_NE(print({"a/1.png", "a/2.png", "b/1.png", "b/3.png"}).samples, set.samples);
  EXPECT_NE(print({"a/1.png", "a/3.png", "b/1.png"}).entries, set.entries);
  EXPECT_NE(print({"a/1.png", "b/1.png", "b/2.png"}).entries, set.entries) << "another label";
  EXPECT_NE(print({"a/1.png", "a/2.png", "c/1.png"}).classes, set.classes);
}

TEST(ImageFolder, ClassesAndFilesComeInTorchvisionsOrder) {
  const ScratchFolder folder;
  for (const char* name : {"b/2.png", "b/10.PNG", "b/deep/1.jpeg", "b/deep/sub/1.png", "b/deep-er/1.Jpg", "B/x.jpg",
                           "ä/é.png", "b/notes.txt"}) {
    folder.write(name, "");
  }
  folder.write("README", "");
  const ImageFolder set(folder.path());
  EXPECT_THAT(set.classes(), ElementsAre("B", "b", "ä"));
  EXPECT_THAT(names_of(set, folder), ElementsAre("0 B/x.jpg", "1 b/10.PNG", "1 b/2.png", "1 b/deep/1.jpeg",
                                                 "1 b/deep-er/1.Jpg", "1 b/deep/sub/1.png", "2 ä/é.png"));
  EXPECT_EQ(set.size(), 7);
}

TEST(ImageFolder, ReadsAPictureWhenItIsAskedFor) {
  const ScratchFolder folder;
  folder.write("cat/1.png", png(5));
  folder.write("dog/1.png", png(6));
  folder.write("dog/2.png", "damaged");
  const ImageFolder set(folder.path());
  Sample sample = set.get(1);
  EXPECT_EQ(sample.label, 1);
  EXPECT_TRUE(same_pixels(copy_of(sample.picture.pixels()), picture(6, 6)));
  EXPECT_EQ(usage_error([&] { set.get(2); }),
            "'" + folder.file("dog/2.png") + "': neither JPEG nor PNG by its first bytes");
  fs::remove(folder.file("cat/1.png"));
  EXPECT_EQ(usage_error([&] { set.get(0); }),
            "cannot open '" + folder.file("cat/1.png") + "': No such file or directory");
  EXPECT_EQ(usage_error([&] { set.get(3); }), "sample 3 asked for, the set has 3");
}

TEST(ImageFolder, DecodesJpegWhenPixelsAreNeededAndSmallerWhenAskedFor) {
  const ScratchFolder folder;
  const testing::Bytes bytes = testing::jpeg_file(picture(100, 90));
  const std::string file(bytes.begin(), bytes.end());
  folder.write("cat/1.jpg", file);
  folder.write("cat/2.jpg", file.substr(0, file.size() / 2));
  folder.write("cat/3.png", png(16));
  const ImageFolder set(folder.path());
  Sample sample = set.get(0);
  EXPECT_EQ(sample.picture.size(), (Size{100, 90}));
  EXPECT_TRUE(same_pixels(copy_of(sample.picture.pixels()), decode_jpeg(bytes, "1.jpg")));
  Sample damaged = set.get(1);
  EXPECT_THAT(usage_error([&] { damaged.picture.pixels(); }),
              ::testing::StartsWith("'" + folder.file("cat/2.jpg") + "': truncated"));
  const ImageFolder quarter(folder.path(), {.jpeg = {.scale_denom = 4}});
  sample = quarter.get(0);
  EXPECT_EQ(sample.picture.size(), (Size{25, 23}));
  EXPECT_TRUE(same_pixels(copy_of(sample.picture.pixels()), decode_jpeg(bytes, "1.jpg", {.scale_denom = 4})));
  EXPECT_EQ(usage_error([&] { quarter.get(2); }),
            "'" + folder.file("cat/3.png") + "': scale_denom 4, which only JPEG pictures can be decoded with");
  EXPECT_EQ(usage_error([&] { ImageFolder(folder.path(), {.jpeg = {.scale_denom = 5}}); }),
            "JPEG: scale_denom 5, 1, 2, 4 or 8 expected");
}

TEST(ImageFolder, ReadsUntidyJpegAsTheTidyOne) {
  const ScratchFolder folder;
  const testing::Bytes tidy = testing::jpeg_file(picture(100, 90));
  const Image whole = decode_jpeg(tidy, "tidy.jpg");
  for (const auto& [how, bytes] : testing::untidy_jpegs(tidy)) {
    folder.write("cat/" + how + ".jpg", {bytes.begin(), bytes.end()});
  }
  const ImageFolder set(folder.path());
  ASSERT_EQ(set.size(), 5);
  for (std::int64_t i = 0; i < set.size(); ++i) {
    SCOPED_TRACE(set.entries()[std::size_t(i)].path);
    Sample sample = set.get(i);
    EXPECT_EQ(sample.picture.size(), (Size{100, 90}));
    sample.picture.crop(30, 40, {20, 25});
    EXPECT_TRUE(same_pixels(copy_of(sample.picture.pixels()), copy_of(whole.view().part(30, 40, 20, 25))));
    EXPECT_TRUE(same_pixels(read_image(set.entries()[std::size_t(i)].path), whole));
  }
}

TEST(ImageFolder, RefusesHugeFilesBeforeItReadsThem) {
  const ScratchFolder folder;
  const std::string path = folder.write("cat/1.jpg", "\xff\xd8\xff");
  const ImageFolder set(folder.path());
  fs::resize_file(path, 50'000'000'000);
  EXPECT_EQ(usage_error([&] { set.get(0); }), "'" + path + "': 50000000000 bytes, at most 1073741824 are read");
  folder.write("cat/1.jpg", "");
  fs::resize_file(path, 1'000'000'000);
  EXPECT_EQ(usage_error([&] { set.get(0); }), "'" + path + "': neither JPEG nor PNG by its first bytes");
}

TEST(ImageFolder, FollowsLinks) {
  const ScratchFolder folder, elsewhere;
  elsewhere.write("pictures/1.png", png(4));
  folder.write("a/own.png", png(4));
  fs::create_directory_symlink(elsewhere.file("pictures"), folder.file("b"));
  fs::create_directory_symlink(elsewhere.file("pictures"), folder.file("a/more"));
  fs::create_symlink(elsewhere.file("pictures/1.png"), folder.file("a/link.png"));
  const ImageFolder set(folder.path());
  EXPECT_THAT(names_of(set, folder), ElementsAre("0 a/link.png", "0 a/own.png", "0 a/more/1.png", "1 b/1.png"));
  EXPECT_EQ(set.get(3).picture.size(), (Size{4, 4}));
}

TEST(ImageFolder, NamesALinkThatLeadsBack) {
  const ScratchFolder folder;
  folder.write("a/deep/1.png", png(4));
  fs::create_directory_symlink("..", folder.file("a/deep/up"));
  EXPECT_EQ(usage_error([&] { ImageFolder{folder.path()}; }), "'" + folder.file("a/deep/up") + "': a link back to '" +
                                                                  fs::canonical(folder.file("a")).string() +
                                                                  "', which contains it");
}

// Passed over, the labels of the classes behind it would move.
TEST(ImageFolder, NamesALinkThatCannotBeFollowed) {
  const ScratchFolder folder;
  for (const char* name : {"a/1.png", "c/1.png"}) folder.write(name, png(4));
  const std::string circle = folder.file("b"), inner = folder.file("a/b.png");
  fs::create_symlink("b", circle);
  EXPECT_EQ(usage_error([&] { ImageFolder{folder.path()}; }),
            "cannot look at '" + circle + "': Too many levels of symbolic links");
  fs::remove(circle);
  fs::create_symlink(std::string(300, 'x'), inner);
  EXPECT_EQ(usage_error([&] { ImageFolder{folder.path()}; }), "cannot look at '" + inner + "': File name too long");
  fs::remove(inner);
  fs::create_symlink("nothing/there", circle);
  fs::create_symlink("c/1.png/below", folder.file("d"));
  EXPECT_THAT(ImageFolder{folder.path()}.classes(), ElementsAre("a", "c")) << "what does not exist is no class";
}

// Who may read everything becomes somebody who may not, for a moment.
class NoRoot {
 public:
  NoRoot() : was_(::geteuid()) {
    if (was_ == 0) {
      EXPECT_EQ(::seteuid(65534), 0);
    }
  }
  ~NoRoot() { EXPECT_EQ(::seteuid(was_), 0); }

 private:
  uid_t was_;
};

TEST(ImageFolder, NamesALinkIntoAPlaceWithoutPermission) {
  const ScratchFolder folder, closed;
  for (const char* name : {"a/1.png", "c/1.png"}) folder.write(name, png(4));
  closed.write("b/1.png", png(4));
  fs::create_directory_symlink(closed.file("b"), folder.file("b"));
  fs::permissions(folder.path(), fs::perms::all);
  fs::permissions(closed.path(), fs::perms::none);
  {
    const NoRoot somebody;
    EXPECT_EQ(usage_error([&] { ImageFolder{folder.path()}; }),
              "cannot look at '" + folder.file("b") + "': Permission denied");
  }
  fs::permissions(closed.path(), fs::perms::owner_all);
  EXPECT_THAT(ImageFolder{folder.path()}.classes(), ElementsAre("a", "b", "c"));
}

TEST(ImageFolder, RefusesWhatIsNoSet) {
  const ScratchFolder folder;
  EXPECT_EQ(usage_error([&] { ImageFolder{folder.file("gone")}; }),
            "cannot read the folder '" + folder.file("gone") + "': No such file or directory");
  folder.write("1.png", png(4));
  EXPECT_EQ(usage_error([&] { ImageFolder{folder.path()}; }), "'" + folder.path() + "': no class folder in it");
  EXPECT_EQ(usage_error([&] { ImageFolder{folder.file("1.png")}; }),
            "cannot read the folder '" + folder.file("1.png") + "': Not a directory");
  folder.write("full/1.png", png(4));
  folder.write("empty/notes.txt", "");
  EXPECT_EQ(usage_error([&] { ImageFolder{folder.path()}; }),
            "'" + folder.path() + "': no picture (.jpg, .jpeg, .png) for class empty");
  folder.write("void/notes.txt", "");
  EXPECT_EQ(usage_error([&] { ImageFolder{folder.path()}; }),
            "'" + folder.path() + "': no picture (.jpg, .jpeg, .png) for classes empty, void");
  folder.write("void/1.BMP", "");
  EXPECT_EQ(usage_error([&] { ImageFolder{folder.path()}; }),
            "'" + folder.file("void/1.BMP") + "': only JPEG and PNG pictures can be read");
}

}  // namespace
}  // namespace lockstep::data
