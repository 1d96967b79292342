#include "lockstep/flags/wrap.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::flags {
namespace {

constexpr const char* kHelp =
    "usage: program [options]\n"
    "\n"
    "Does one thing, and then it does another thing.\n"
    "That is all.\n"
    "\n"
    "Options:\n"
    "  -h, --help      Print this help and exit\n"
    "  --model NAME    mlp|convnet|resnet18|resnet34: what is trained [mlp]\n";

TEST(Wrap, WhatFitsStays) {
  EXPECT_EQ(wrapped(kHelp, 120), kHelp);
  EXPECT_EQ(wrapped(kHelp, 0), kHelp) << "no terminal";
  EXPECT_EQ(wrapped("", 10), "");
}

TEST(Wrap, TextGoesOnBelowItself) {
  EXPECT_EQ(wrapped(kHelp, 44),
            "usage: program [options]\n"
            "\n"
            "Does one thing, and then it does another\n"
            "thing. That is all.\n"
            "\n"
            "Options:\n"
            "  -h, --help      Print this help and exit\n"
            "  --model NAME    mlp|convnet|resnet18|\n"
            "                  resnet34: what is trained\n"
            "                  [mlp]\n");
}

TEST(Wrap, WhereNamesLeaveTooLittleRoomTheTextHasLinesOfItsOwn) {
  EXPECT_EQ(wrapped("  --a-long-name DIR    Here and there and everywhere\n", 30),
            "  --a-long-name DIR\n"
            "      Here and there and\n"
            "      everywhere\n");
}

TEST(Wrap, LinesWithAnIndentAndNoGapKeepIt) {
  EXPECT_EQ(wrapped("       lockstep --version | --help\n", 30),
            "       lockstep --version |\n"
            "       --help\n");
}

TEST(Wrap, WordsStayWhole) { EXPECT_EQ(wrapped("a wordwithoutend b\n", 4), "a\nwordwithoutend\nb\n"); }

TEST(Wrap, ParagraphsThatFitAreNotFilledAnew) { EXPECT_EQ(wrapped("one\ntwo\n\nthree\n", 10), "one\ntwo\n\nthree\n"); }

TEST(Wrap, NoLineIsTooLongFromATerminalsWidthOn) {
  for (std::size_t columns = 30; columns < 90; ++columns) {
    const std::string text = wrapped(kHelp, columns);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      EXPECT_LE(end - begin, columns) << text;
      begin = end + 1;
    }
  }
}

}  // namespace
}  // namespace lockstep::flags
