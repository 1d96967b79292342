#include "lockstep/data/readers/load_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/digits.h"
#include "tests/support/idx_files.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;
using testing::usage_error;

TEST(LoadSet, LooksForTheNamedFilesOfEachKnownSet) {
  for (const KnownSet& set : known_sets()) {
    for (const Split split : {Split::train, Split::test}) {
      const std::vector<std::string> names = file_names(set.files, split);
      if (names.empty()) continue;
      const std::string error = usage_error([&] { load_set(set, "/nowhere", split); });
      EXPECT_THAT(error, HasSubstr("'" + names.front() + "'")) << set.name;
      EXPECT_THAT(error, HasSubstr("'/nowhere/" + set.folder + "'")) << set.name;
    }
  }
}

TEST(LoadSet, ReadsWhatTheRowSays) {
  const testing::ScratchFolder folder;
  folder.write("FashionMNIST/raw/t10k-images-idx3-ubyte", testing::idx({1, 28, 28}, std::string(784, 'p')));
  folder.write("FashionMNIST/raw/t10k-labels-idx1-ubyte", testing::idx({1}, "\x09"));
  const MemoryPictures set = load_set("fashion-mnist", folder.path(), Split::test);
  EXPECT_EQ(set.classes().at(std::size_t(set.get(0).label)), "Ankle boot");
  EXPECT_EQ(load_set("digits", "", Split::test).content().pixels, make_digits(Split::test).content().pixels);
}

TEST(LoadSet, LeavesFoldersToTheirReader) {
  EXPECT_THAT(usage_error([] { load_set("imagefolder", "/nowhere", Split::train); }), HasSubstr("ImageFolder"));
  EXPECT_THAT(usage_error([] { load_set("minst", "/nowhere", Split::train); }), HasSubstr("did you mean 'mnist'?"));
}

}  // namespace
}  // namespace lockstep::data
