#include "lockstep/flags/man_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/flags/small_program.h"

namespace lockstep::flags {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string page(const std::vector<std::string>& words) {
  SmallOptions options;
  const Command root = small_program(options);
  return man_page(root, find_place(root, words), "toy 1");
}

TEST(ManPage, SaysWhatTheTableSays) {
  EXPECT_EQ(page({"train"}),
            ".TH TOY\\-TRAIN 1 \"\" \"toy 1\"\n"
            ".nh\n"
            ".ad l\n"
            ".SH NAME\n"
            "toy\\-train \\- train: a model\n"
            ".SH SYNOPSIS\n"
            "toy train [options]\n"
            ".SH DESCRIPTION\n"
            "Trains.\n"
            "That is all.\n"
            ".SH OPTIONS\n"
            ".TP\n"
            "\\fB\\-h\\fR, \\fB\\-\\-help\\fR\n"
            "Print this help and exit\n"
            ".SS Job\n"
            ".TP\n"
            "\\fB\\-\\-opt\\fR \\fINAME\\fR\n"
            "sgd|\\:adam: The update's rule [sgd]\n"
            ".TP\n"
            "\\fB\\-n\\fR, \\fB\\-\\-count\\fR \\fIN\\fR\n"
            "How many [1]\n"
            ".TP\n"
            "\\fB\\-\\-output\\-dir\\fR \\fIDIR\\fR\n"
            "Where to\n"
            ".TP\n"
            "\\fB\\-\\-fast\\fR\n"
            "\\&\n"
            ".SH SEE ALSO\n"
            "\\fBtoy\\fR(1),\n"
            "\\fBtoy\\-run\\fR(1),\n"
            "\\fBtoy\\-data\\fR(1),\n"
            "\\fBtoy\\-data\\-fetch\\fR(1)\n");
}

TEST(ManPage, OfCommandsThatHaveOthers) {
  EXPECT_THAT(page({}), AllOf(HasSubstr(".SH COMMANDS\n.TP\n\\fBtrain\\fR\ntrain: a model\n"),
                              HasSubstr("\\fB\\-\\-version\\fR\n"), HasSubstr(".SH NOTES\nThat is the end.\n"),
                              Not(HasSubstr(".SH DESCRIPTION"))));
}

TEST(ManPage, NothingInATextIsARequestOfRoff) {
  const Command root{
      .name = "toy", .summary = ".so on", .table = {.usage = "toy\n  -x", .about = ".x\n'y\n\na\\b\n  an example\n"}};
  EXPECT_THAT(man_page(root, {"toy", &root}, "1"),
              AllOf(HasSubstr("toy \\- \\&.so on\n"), HasSubstr(".SH SYNOPSIS\ntoy\n.br\n\\-x\n"),
                    HasSubstr(".SH DESCRIPTION\n\\&.x\n\\&'y\n.PP\na\\eb\n.br\nan example\n")));
}

TEST(ManPage, NameIsThePath) {
  SmallOptions options;
  const Command root = small_program(options);
  EXPECT_EQ(page_name(find_place(root, {"data", "fetch"})), "toy-data-fetch");
}

}  // namespace
}  // namespace lockstep::flags
