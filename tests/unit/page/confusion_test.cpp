#include "lockstep/page/confusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>

#include "lockstep/page/page.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::page {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::usage_error;

constexpr const char* kAnswers =
    "{\"event\":\"answers\",\"time\":2,\"step\":7,\"epoch\":1,\"classes\":[\"cat\",\"<dog>\"],"
    "\"confusion\":[0,0,5,0,1,2,1,1,9],\"class_samples\":[7,9],\"class_right\":[5,9],\"mistake_samples\":[42,7],"
    "\"mistake_truths\":[0,0],"
    "\"mistake_predictions\":[1,1],\"mistake_shares\":[0.987,0.5],\"mistake_files\":[\"a/b&c.png\",\"\"]}\n";

RunRecord record_of(const std::string& lines) {
  const testing::ScratchFolder folder;
  folder.write("run/metrics.jsonl", "{\"event\":\"start\",\"time\":1}\n" + lines);
  return read_run(folder.file("run"));
}

// What a reader of the page sees of the squares.
std::map<std::pair<int, int>, int> squares_of(const std::string& page) {
  std::map<std::pair<int, int>, int> found;
  const std::regex square("data-truth=\"([0-9]+)\" data-prediction=\"([0-9]+)\" data-count=\"([0-9]+)\"");
  for (std::sregex_iterator at(page.begin(), page.end(), square), end; at != end; ++at)
    found[{std::stoi((*at)[1]), std::stoi((*at)[2])}] = std::stoi((*at)[3]);
  return found;
}

TEST(Confusion, TheSquaresAreTheCounts) {
  const RunRecord run = record_of(kAnswers);
  ASSERT_TRUE(run.answers);
  EXPECT_EQ(run.answers->step, 7);
  const std::string page = html({run});
  EXPECT_EQ(squares_of(page), (std::map<std::pair<int, int>, int>{{{0, 0}, 5}, {{0, 1}, 2}, {{1, 1}, 9}}));
  EXPECT_THAT(page, HasSubstr("What was taken for what after step 7: run"));
  EXPECT_THAT(page, HasSubstr("<td>42</td><td>cat</td><td>&lt;dog&gt;</td><td>98.7 %</td><td>a/b&amp;c.png</td>"));
  EXPECT_THAT(page, Not(HasSubstr("<dog>")));
}

TEST(Confusion, TheWorstClassIsTheFirstOfTheTable) {
  const std::string table = classes_table(*record_of(kAnswers).answers);
  const std::size_t cat = table.find("<td>cat</td><td>5</td><td>7</td><td>71.4 %</td>");
  const std::size_t dog = table.find("<td>&lt;dog&gt;</td><td>9</td><td>9</td><td>100.0 %</td>");
  EXPECT_LT(cat, dog);
  EXPECT_NE(dog, std::string::npos) << table;
  std::string older = kAnswers;
  older.erase(older.find("\"class_samples\""), std::string("\"class_samples\":[7,9],\"class_right\":[5,9],").size());
  EXPECT_EQ(classes_table(*record_of(older).answers), "");
  older = kAnswers;
  older.replace(older.find("[7,9]"), 5, "[7,9,1]");
  EXPECT_THAT(usage_error([&] { record_of(older); }), HasSubstr("is no event of a run"));
}

TEST(Confusion, TheLastEvaluationIsShown) {
  std::string later = kAnswers;
  later.replace(later.find("\"step\":7"), 8, "\"step\":9");
  later.replace(later.find("[0,0,5,"), 7, "[0,0,6,");
  const RunRecord run = record_of(kAnswers + later);
  EXPECT_EQ(run.answers->step, 9);
  EXPECT_EQ(squares_of(html({run})).at({0, 0}), 6);
}

TEST(Confusion, MistakesAreShownWherePicturesOfThemAre) {
  const testing::ScratchFolder folder;
  folder.write("run/metrics.jsonl", std::string("{\"event\":\"start\",\"time\":1}\n") + kAnswers);
  const auto page_with = [&](const std::string& pictures) {
    folder.write("run/mistakes.json", pictures);
    return html({read_run(folder.file("run"))});
  };
  const std::string shown = page_with(R"({"step":7,"samples":[7,99],"pictures":["iVBORw0K+/=","AAAA"]})");
  EXPECT_THAT(shown,
              HasSubstr("<tr><td><img alt=\"sample 7\" src=\"data:image/png;base64,iVBORw0K+/=\"></td><td>7</td>"));
  EXPECT_THAT(shown, HasSubstr("<tr><td></td><td>42</td>"));
  EXPECT_THAT(shown, Not(HasSubstr("AAAA"))) << "it is of no mistake that is told";
  EXPECT_THAT(page_with(R"({"step":6,"samples":[7],"pictures":["iVBORw0K"]})"), Not(HasSubstr("<img")))
      << "of another evaluation";
  for (const char* wrong :
       {"", "[]", "{}", R"({"step":7,"samples":[7],"pictures":[]})",
        R"({"step":7,"samples":[7],"pictures":["\"><b>"]})", R"({"step":7,"samples":[7],"pictures":[3]})",
        R"({"step":7,"samples":["x"],"pictures":["AAAA"]})", "\xff"})
    EXPECT_EQ(usage_error([&] { page_with(wrong); }),
              "'" + folder.file("run/mistakes.json") + "': no pictures of a run's mistakes")
        << wrong;
  EXPECT_THAT(
      usage_error([&] { page_with(R"({"step":7,"samples":[7],"pictures":[")" + std::string(70'000, 'A') + "\"]}"); }),
      HasSubstr("no pictures of a run's mistakes"));
}

// Of many classes there is no matrix, but mistakes.
TEST(Confusion, WithoutCountsThereIsNoMatrix) {
  std::string lines = kAnswers;
  lines.replace(lines.find("\"confusion\":[0,0,5,0,1,2,1,1,9],"),
                std::string("\"confusion\":[0,0,5,0,1,2,1,1,9],").size(), "");
  const RunRecord run = record_of(lines);
  EXPECT_EQ(confusion_svg(*run.answers, "t"), "");
  EXPECT_THAT(html({run}), HasSubstr("The surest mistakes"));
  EXPECT_EQ(confusion_svg({.classes = {"a"}, .cells = {{0, 0, 0}}}, "t"), "");
  EXPECT_EQ(mistakes_table({.classes = {"a"}}), "");
}

TEST(Confusion, WhatIsNoClassIsRefused) {
  for (const auto& [right, wrong] :
       {std::pair("\"confusion\":[0,0,5,", "\"confusion\":[0,2,5,"), std::pair("[1,1],", "[1,-1],"),
        std::pair("[0,0],", "[0],"), std::pair("1,1,9]", "1,1]"), std::pair("[42,7]", "[42,\"x\"]"),
        std::pair("[0.987,0.5]", "[0.987,\"nan\"]"), std::pair("\"classes\":[", "\"classes\":[3,")}) {
    std::string line = kAnswers;
    line.replace(line.find(right), std::string(right).size(), wrong);
    EXPECT_THAT(usage_error([&] { record_of(line); }), HasSubstr(":2: ")) << wrong;
  }
}

}  // namespace
}  // namespace lockstep::page
