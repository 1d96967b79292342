#include "lockstep/checkpoint/store/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/checkpoint/store/digest.h"
#include "tests/support/usage_error.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::usage_error;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kHash(32, 'a');

Manifest small() {
  return {.step = 12,
          .weights = kHash,
          .files = {{"model.safetensors", 20, kHash, {{"", 0, 8, kHash}, {"a \"b\"\n", 8, 20, kHash}}},
                    {"state.json", 0, kHash, {}}}};
}

// Lines with the hash that they need.
std::string sealed(const std::string& lines) { return lines + "end " + digest_of(lines) + "\n"; }

std::string fault(const std::string& text) {
  return usage_error([&] { parse_manifest(text, "d/MANIFEST"); });
}

const std::string kHead = "lockstep-checkpoint 1\nstep 1\nweights " + kHash + "\n";

TEST(Manifest, ComesBack) { EXPECT_EQ(parse_manifest(format_manifest(small()), ""), small()); }

TEST(Manifest, IsTheseLines) {
  const std::string lines = "lockstep-checkpoint 1\nstep 12\nweights " + kHash + "\nfile 20 " + kHash +
                            " \"model.safetensors\"\npiece 0 8 " + kHash + " \"\"\npiece 8 20 " + kHash +
                            " \"a \\\"b\\\"\\n\"\nfile 0 " + kHash + " \"state.json\"\n";
  EXPECT_EQ(format_manifest(small()), sealed(lines));
}

TEST(Manifest, EveryFlippedBitAndEveryTruncationIsRefused) {
  const std::string whole = format_manifest(small());
  for (std::size_t place = 0; place < whole.size(); ++place) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = whole;
      flipped[place] = char(flipped[place] ^ (1 << bit));
      EXPECT_THAT(fault(flipped), AllOf(HasSubstr("'d/MANIFEST'"), HasSubstr("offset"))) << place << " " << bit;
    }
    EXPECT_THAT(fault(whole.substr(0, place)), AllOf(HasSubstr("'d/MANIFEST'"), HasSubstr("offset"))) << place;
  }
}

TEST(Manifest, OfAnotherVersionIsNamedSo) {
  EXPECT_THAT(fault(sealed("lockstep-checkpoint 2\n")), HasSubstr("another version; this program reads version 1"));
}

TEST(Manifest, LinesThatCannotBeAreRefusedWithTheirPlace) {
  const std::string file = kHead + "file 8 " + kHash + " \"a\"\n";
  const std::string at = std::to_string(file.size());
  EXPECT_THAT(fault(sealed(kHead + "file 8 " + kHash + " \"../a\"\n")), HasSubstr("names a file that is none"));
  EXPECT_THAT(fault(sealed(kHead + "file 8 " + kHash + " \"..\"\n")), HasSubstr("names a file that is none"));
  EXPECT_THAT(fault(sealed(kHead + "file 8 " + kHash + " a\n")), HasSubstr("no name in quotes"));
  EXPECT_THAT(fault(sealed(kHead + "file -8 " + kHash + " \"a\"\n")), HasSubstr("no number"));
  EXPECT_THAT(fault(sealed(kHead + "file 8 abc \"a\"\n")), HasSubstr("no hash"));
  EXPECT_THAT(fault(sealed(kHead + "piece 0 8 " + kHash + " \"a\"\n")), HasSubstr("is of no file"));
  EXPECT_THAT(fault(sealed(file + "piece 1 8 " + kHash + " \"a\"\n")), AllOf(HasSubstr("a piece"), HasSubstr(at)));
  EXPECT_THAT(fault(sealed(file + "piece 0 9 " + kHash + " \"a\"\n")), HasSubstr("longer than the file"));
  EXPECT_THAT(fault(sealed(file + "piece 0 7 " + kHash + " \"a\"\n")), HasSubstr("'a' end before the file"));
  EXPECT_THAT(fault(sealed(file + "part 0 8\n")), HasSubstr("none of step, weights"));
  EXPECT_THAT(fault(sealed(kHead + "step 3 4\n")), HasSubstr("goes on behind its end"));
  EXPECT_THAT(fault(sealed("lockstep-checkpoint 1\nstep 3\n")), HasSubstr("without weights or files"));
  EXPECT_THAT(fault("{}"), HasSubstr("no manifest of a checkpoint"));
}

// Names are JSON strings, so they may hold any character.
TEST(Manifest, AMessageIsOneLineWhateverTheNames) {
  EXPECT_THAT(fault(sealed(kHead + "file 8 " + kHash + " \"a\\nb\"\n")), HasSubstr("'a\\nb' end before the file"));
}

}  // namespace
}  // namespace lockstep::checkpoint
