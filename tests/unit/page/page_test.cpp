#include "lockstep/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "lockstep/page/chart.h"

namespace lockstep::page {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunRecord run_named(const std::string& name, double base) {
  RunRecord run{.name = name, .facts = {{"model", "mlp"}, {"dataset", "digits"}}};
  for (int step = 1; step <= 20; ++step) {
    run.train["loss"].push_back({double(step), base / step});
    run.train["data_seconds"].push_back({double(step), 1});
    run.train["compute_seconds"].push_back({double(step), 2});
    run.train["step_seconds"].push_back({double(step), 1});
  }
  run.eval["top1"] = {{10, 0.5}, {20, 0.9}};
  run.starts = {{.time = 0}};
  run.done = true;
  run.steps = 20;
  return run;
}

double attribute(const std::string& element, const std::string& name) {
  std::smatch found;
  if (!std::regex_search(element, found, std::regex(name + "=\"([^\"]*)\""))) throw std::runtime_error("no " + name);
  return std::stod(found[1]);
}

// What a reader of the page sees: the places of a curve's points, as values by the chart's axes.
Points read_back(const std::string& page, const std::string& title, const std::string& curve) {
  const std::size_t begin = page.rfind("<svg", page.find("<title>" + title + "</title>"));
  const std::string chart = page.substr(begin, page.find("</svg>", begin) - begin);
  const double x0 = attribute(chart, "data-x0"), x1 = attribute(chart, "data-x1"), y0 = attribute(chart, "data-y0"),
               y1 = attribute(chart, "data-y1");
  std::smatch line;
  if (!std::regex_search(chart, line, std::regex("data-name=\"" + curve + "\" points=\"([^\"]*)\""))) return {};
  Points points;
  const Plot plot;
  const std::string places = line[1];
  const std::regex place("([0-9.]+),([0-9.]+)");
  for (std::sregex_iterator at(places.begin(), places.end(), place), end; at != end; ++at)
    points.push_back({x0 + (std::stod((*at)[1]) - plot.left) / (plot.right - plot.left) * (x1 - x0),
                      y0 + (plot.bottom - std::stod((*at)[2])) / (plot.bottom - plot.top) * (y1 - y0)});
  return points;
}

TEST(Page, TheDrawnValuesAreThoseOfTheRuns) {
  const std::vector<RunRecord> runs = {run_named("first", 2), run_named("second", 3)};
  const std::string page = html(runs);
  for (const RunRecord& run : runs) {
    const Points drawn = read_back(page, "Loss in training", run.name);
    const Points& told = run.train.at("loss");
    ASSERT_EQ(drawn.size(), told.size()) << run.name;
    for (std::size_t i = 0; i < told.size(); ++i) {
      EXPECT_NEAR(drawn[i].step, told[i].step, 0.001);
      EXPECT_NEAR(drawn[i].value, told[i].value, 0.001);
    }
  }
  const Points top1 = read_back(page, "Accuracy (share of right answers)", "first");
  ASSERT_EQ(top1.size(), 2u);
  EXPECT_NEAR(top1[1].value, 0.9, 0.001);
  const Points waited = read_back(page, "Time of the steps in percent: first", "waiting for data");
  ASSERT_EQ(waited.size(), 20u);
  for (const Point& point : waited) EXPECT_NEAR(point.value, 25, 0.3);
}

TEST(Page, NeedsNothingFromElsewhere) {
  const std::string page = html({run_named("a", 1)});
  for (const char* foreign : {"http:", "https:", "src=", "<script", "@import", "url("})
    EXPECT_THAT(page, Not(HasSubstr(foreign)));
  EXPECT_THAT(page, HasSubstr("width=device-width"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_EQ(page.find("\xff"), std::string::npos);
}

TEST(Page, TellsOfFaultsRestartsAndTheBest) {
  RunRecord run = run_named("<b>", 1);
  EXPECT_THAT(html({run}), Not(HasSubstr("Faults and restarts")));
  run.starts.push_back({.restart_count = 1, .first_step = 12, .time = 86400});
  run.faults = {{.cause = "rank 1 <died>", .time = 86399, .lost = 2.5}, {.time = 86400, .lost = std::nan("")}};
  run.best_eval = {{"top1", 0.9}};
  run.done = false;
  const std::string page = html({run});
  EXPECT_THAT(page, HasSubstr("<td>started again</td><td>1970-01-02 00:00:00 UTC</td><td>from step 12</td>"));
  EXPECT_THAT(page,
              HasSubstr("<td>fault</td><td>1970-01-01 23:59:59 UTC</td><td>rank 1 &lt;died&gt;; 2.5 s lost</td>"));
  EXPECT_THAT(page, HasSubstr("<td>not known of what</td>"));
  EXPECT_THAT(page, HasSubstr("did not end"));
  EXPECT_THAT(page, HasSubstr("Best checkpoint"));
  EXPECT_THAT(page, Not(HasSubstr("<b></"))) << "names are no markup";
}

TEST(Page, ARunThatHasOnlyBegunHasAPage) {
  EXPECT_THAT(html({RunRecord{.name = "young", .starts = {{.time = 1}}}}), HasSubstr("<td>young</td>"));
}

}  // namespace
}  // namespace lockstep::page
