#include "lockstep/base/text.h"

#include <gtest/gtest.h>

namespace lockstep::base {
namespace {

const std::vector<std::string> kModels = {"mlp", "mlp_dropout", "convnet"};
const std::vector<std::string> kOptimizers = {"sgd", "sgd_nesterov", "adam", "adamw"};

TEST(Nearest, FindsOneEditOfEveryKind) {
  EXPECT_EQ(nearest("convnot", kModels), "convnet");   // changed
  EXPECT_EQ(nearest("convet", kModels), "convnet");    // missing
  EXPECT_EQ(nearest("connvnet", kModels), "convnet");  // one too many
  EXPECT_EQ(nearest("ocnvnet", kModels), "convnet");   // swapped
  EXPECT_EQ(nearest("ConvNet", kModels), "convnet");   // upper case
}

TEST(Nearest, ShortNamesAllowOneEditOnly) {
  EXPECT_EQ(nearest("sdg", kOptimizers), "sgd");
  EXPECT_EQ(nearest("mpl", kModels), "mlp");
  EXPECT_EQ(nearest("cat", kOptimizers), "");
  EXPECT_EQ(nearest("x", {"n"}), "");
}

TEST(Nearest, TheNearerOneWinsAndTheFirstOfEquals) {
  EXPECT_EQ(nearest("adamv", kOptimizers), "adam");
  EXPECT_EQ(nearest("adamww", kOptimizers), "adamw");
  EXPECT_EQ(nearest("bat", {"cat", "rat"}), "cat");
}

TEST(Nearest, ABeginningCountsWhenItIsTheOnlyOne) {
  EXPECT_EQ(nearest("nproc", {"nproc-per-node", "epochs"}), "nproc-per-node");
  EXPECT_EQ(nearest("save", {"save-weights", "save-everything"}), "");
}

TEST(Nearest, NothingNearIsEmpty) {
  EXPECT_EQ(nearest("transformer", kModels), "");
  EXPECT_EQ(nearest("", kModels), "");
  EXPECT_EQ(nearest("mlp", {}), "");
  EXPECT_EQ(nearest(std::string(100000, 'm'), kModels), "");
}

TEST(UnknownName, AsksOnlyWhenANameIsNear) {
  EXPECT_EQ(unknown_name("model", "convnot", kModels),
            "unknown model 'convnot': did you mean 'convnet'? (one of mlp, mlp_dropout, convnet)");
  EXPECT_EQ(unknown_name("model", "transformer", kModels),
            "unknown model 'transformer' (one of mlp, mlp_dropout, convnet)");
  EXPECT_EQ(unknown_name("tensor", "w", {}), "unknown tensor 'w'");
}

TEST(Join, PutsTheSeparatorBetween) {
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(join({"a"}), "a");
  EXPECT_EQ(join({"a", "b", "c"}, "|"), "a|b|c");
}

TEST(RunsText, TellsRunsByTheirEnds) {
  EXPECT_EQ(runs_text({}), "");
  EXPECT_EQ(runs_text({5}), "5");
  EXPECT_EQ(runs_text({0, 1}), "0 to 1");
  EXPECT_EQ(runs_text({0, 3, 4, 5, 7}), "0, 3 to 5, 7");
}

TEST(Shown, LeavesTextAlone) {
  for (const char* text : {"", "data/it's here\\", "\u00e4\u00a0\u20ac", "\U0001f600", "\ud7ff\ue000"}) {
    EXPECT_EQ(shown(text), text);
  }
}

TEST(Shown, EscapesControlCharacters) {
  EXPECT_EQ(shown("a\nb\r\tc\x1b[2Jd\x7f"), "a\\nb\\r\\tc\\x1b[2Jd\\x7f");
  EXPECT_EQ(shown(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(shown("\xc2\x9b\x32J"), "\\xc2\\x9b2J");  // CSI, in one character
}

TEST(Shown, EscapesWhatIsNoUtf8) {
  EXPECT_EQ(shown("\xff\x9b"), "\\xff\\x9b");
  EXPECT_EQ(shown("\xe2\x82"), "\\xe2\\x82");           // cut off
  EXPECT_EQ(shown("\xc0\x8a"), "\\xc0\\x8a");           // a newline in two bytes
  EXPECT_EQ(shown("\xe0\x80\x8a"), "\\xe0\\x80\\x8a");  // in three
  EXPECT_EQ(shown("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half a pair of UTF-16
  EXPECT_EQ(shown("\xf4\x90\x80\x80").size(), 16u);     // beyond the last character
  EXPECT_EQ(shown("\xf0\x80\x80\x8a").size(), 16u);
}

TEST(Shown, ChangesNothingTheSecondTime) { EXPECT_EQ(shown(shown("a\n\xff\\n")), shown("a\n\xff\\n")); }

TEST(SmallLetters, AreThoseOfAscii) { EXPECT_EQ(small_letters("CUDA:0 \xc3\x84z"), "cuda:0 \xc3\x84z"); }

TEST(SizeText, InTheUnitThatFits) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1024), "1.0 KiB");
  EXPECT_EQ(size_text(std::uint64_t(32) << 20), "32.0 MiB");
  EXPECT_EQ(size_text((std::uint64_t(1) << 30) - 1), "1.0 GiB");
  EXPECT_EQ(size_text(std::uint64_t(5) << 29), "2.5 GiB");
  EXPECT_EQ(size_text(~std::uint64_t(0)), "16.0 EiB");
}

}  // namespace
}  // namespace lockstep::base
