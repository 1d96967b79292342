#include "lockstep/data/readers/annotated_pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/image_files.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::usage_error;

class AnnotatedSet : public ::testing::Test {
 protected:
  AnnotatedSet() {
    for (int side : {4, 5, 6}) {
      const testing::Bytes png = testing::png_file(testing::picture(side, side), false);
      folder_.write("pictures/" + std::to_string(side) + ".png", {png.begin(), png.end()});
    }
  }
  AnnotatedPictures read(const std::string& lines, const std::vector<std::string>& classes = {}) const {
    return AnnotatedPictures(folder_.write("train.csv", lines), classes);
  }
  std::string refused(const std::string& lines, const std::vector<std::string>& classes = {}) const {
    return usage_error([&] { read(lines, classes); });
  }
  ScratchFolder folder_;
};

TEST_F(AnnotatedSet, PathsAreFromTheFilesFolderOn) {
  const AnnotatedPictures set =
      read("path,label,note\npictures/6.png,dog,x\n" + folder_.file("pictures/4.png") + ",\"cat, small\"\r\n");
  EXPECT_EQ(set.size(), 2);
  EXPECT_THAT(set.classes(), ElementsAre("cat, small", "dog"));
  EXPECT_EQ(set.get(0).label, 1);
  EXPECT_EQ(set.get(0).picture.size(), (Size{6, 6}));
  EXPECT_EQ(set.get(1).label, 0);
  EXPECT_EQ(set.file_of(1), folder_.file("pictures/4.png"));
  EXPECT_THAT(usage_error([&] { set.get(2); }), HasSubstr("sample 2 asked for, the set has 2"));
}

TEST_F(AnnotatedSet, AFirstLineWithAPictureIsNoHeader) {
  EXPECT_EQ(read("pictures/4.png,1\npictures/5.png,1\n").size(), 2);
  EXPECT_EQ(read("\xef\xbb\xbfimage,class\npictures/4.png,1").size(), 1);
}

TEST_F(AnnotatedSet, NumbersAreSortedAsNumbers) {
  const std::string lines = "pictures/4.png,10\npictures/5.png,9\npictures/6.png,-1\n";
  EXPECT_THAT(read(lines).classes(), ElementsAre("-1", "9", "10"));
  EXPECT_THAT(read(lines + "pictures/6.png,x\n").classes(), ElementsAre("-1", "10", "9", "x"));
}

TEST_F(AnnotatedSet, AClassHasOneLabel) {
  EXPECT_EQ(refused("pictures/4.png,dog\n", {"dog", "cat", "dog"}),
            "'" + folder_.file("train.csv") + "': 'dog' is the name of two classes, 0 and 2");
}

TEST_F(AnnotatedSet, TheOtherPartsClassesMayBeGiven) {
  EXPECT_EQ(read("pictures/4.png,dog\n", {"cat", "dog"}).get(0).label, 1);
  EXPECT_EQ(refused("path,label\npictures/4.png,cow\n", {"cat", "dog"}),
            folder_.file("train.csv") + ":2: label 'cow' is none of the classes: cat, dog");
}

TEST_F(AnnotatedSet, TheFingerprintTellsListsApart) {
  const auto print = [&](const char* lines) { return read(lines).fingerprint(); };
  EXPECT_EQ(print("a.png,1\nb.png,2\n"), print("path,label\na.png,1,note\nb.png,2\n"));
  EXPECT_FALSE(print("a.png,1\nb.png,2\n") == print("a.png,2\nb.png,1\n"));
  EXPECT_FALSE(print("a.png,1\nb.png,2\n") == print("a.png,1\nc.png,2\n"));
}

TEST_F(AnnotatedSet, WhatIsWrongIsNamedWithItsLine) {
  const std::string file = folder_.file("train.csv");
  EXPECT_EQ(refused("path,label\na.png,1\nb.png\n"), file + ":3: a path and a label expected, there is only 'b.png'");
  EXPECT_EQ(refused("path,label\na.bmp,1\n"), file + ":2: 'a.bmp' does not end in .jpg, .jpeg or .png");
  EXPECT_EQ(refused("a.png,1\nb.png,\n"), file + ":2: no label behind 'b.png'");
  EXPECT_EQ(refused("path,label\n"), "'" + file + "': no picture is listed");
  EXPECT_EQ(refused(""), "'" + file + "': no picture is listed");
  EXPECT_THAT(usage_error([&] { AnnotatedPictures(folder_.file("none.csv")); }), HasSubstr("none.csv"));
  const AnnotatedPictures missing = read("gone.png,1\n");
  EXPECT_THAT(usage_error([&] { missing.get(0); }), HasSubstr(folder_.file("gone.png")));
}

}  // namespace
}  // namespace lockstep::data
