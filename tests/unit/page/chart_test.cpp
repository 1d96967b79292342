#include "lockstep/page/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::page {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

TEST(Ticks, AreRoundNumbersWithin) {
  EXPECT_THAT(ticks(0, 1), ElementsAre(0, 0.25, 0.5, 0.75, 1));
  EXPECT_THAT(ticks(1, 937), ElementsAre(200, 400, 600, 800));
  EXPECT_THAT(ticks(7, 7), ElementsAre(7));
  for (const auto& [low, high] : {std::pair(-3.0, 0.001), std::pair(1e-9, 1e-8), std::pair(1e6, 1e6 + 1)}) {
    const std::vector<double> all = ticks(low, high);
    EXPECT_GE(all.size(), 3u) << low;
    EXPECT_LE(all.size(), 9u) << low;
    EXPECT_GE(all.front(), low - 1e-9 * std::abs(high));
    EXPECT_LE(all.back(), high + 1e-9 * std::abs(high));
  }
}

TEST(Thinned, KeepsPeaksBreaksAndBothEnds) {
  Points points;
  for (int step = 0; step < 10000; ++step) points.push_back({double(step), step == 4321 ? 100.0 : step % 7 * 0.1});
  points[7000].value = kNothing;
  const Points few = thinned(points, 300);
  EXPECT_LE(few.size(), 302u);
  EXPECT_EQ(few.front().step, 0);
  EXPECT_EQ(few.back().step, 9999);
  EXPECT_TRUE(std::any_of(few.begin(), few.end(), [](const Point& point) { return point.value == 100; }));
  EXPECT_TRUE(std::any_of(few.begin(), few.end(), [](const Point& point) { return std::isnan(point.value); }));
  EXPECT_TRUE(std::is_sorted(few.begin(), few.end(), [](const Point& a, const Point& b) { return a.step < b.step; }));
  EXPECT_EQ(thinned(few, 1000).size(), few.size());
}

TEST(Svg, ACurveThatIsNoNumberBreaks) {
  const std::string drawn =
      svg({.title = "t", .curves = {{.name = "a", .points = {{1, 1}, {2, 2}, {3, kNothing}, {4, 3}}}}});
  EXPECT_THAT(drawn, HasSubstr("<polyline class=\"c0\" data-name=\"a\" points=\"66.00,208.00 253.33,110.00\"/>"));
  EXPECT_THAT(drawn, HasSubstr("<circle class=\"c0\" data-name=\"a\" cx=\"628.00\" cy=\"12.00\" r=\"3\"/>"));
  EXPECT_EQ(svg({.title = "t", .curves = {{.name = "a", .points = {{1, kNothing}}}}}), "");
  EXPECT_EQ(svg({.title = "t"}), "");
}

// A learning rate that stays at 1e-4: the first figures of its marks were outside.
TEST(Svg, LongLabelsOfTheAxisHaveRoom) {
  const auto drawn = [](double value) {
    return svg({.title = "t", .curves = {{.name = "a", .points = {{1, value}, {2, value}}}}});
  };
  EXPECT_THAT(drawn(1e-4), ::testing::AllOf(HasSubstr(">0.0001025<"), HasSubstr("viewBox=\"-10 0 650 232\"")));
  EXPECT_THAT(drawn(-1.25e-10), HasSubstr("viewBox=\"-17 0 657 232\""));
  EXPECT_THAT(drawn(0.1), HasSubstr("viewBox=\"0 0 640 232\""));
}

// The last figure of "6000" was outside.
TEST(Svg, ALongLabelBelowTheEndHasRoom) {
  const std::string drawn = svg({.title = "t", .curves = {{.name = "a", .points = {{0, 1}, {6000, 2}}}}});
  EXPECT_THAT(drawn, ::testing::AllOf(HasSubstr(">6000<"), HasSubstr("viewBox=\"0 0 644 232\"")));
}

TEST(Svg, EqualValuesAreALineInTheMiddle) {
  for (const double value : {0.0, 0.5, -1e30, 1e-300, 1e300}) {
    const std::string drawn = svg({.title = "t", .curves = {{.name = "a", .points = {{1, value}, {2, value}}}}});
    EXPECT_THAT(drawn, HasSubstr("points=\"66.00,110.00 628.00,110.00\"")) << value;
    EXPECT_THAT(drawn, Not(HasSubstr("nan"))) << value;
  }
}

TEST(Escaped, LeavesNothingToHtmlOrTheTerminal) {
  EXPECT_EQ(escaped("<script>&\"'"), "&lt;script&gt;&amp;&quot;&#39;");
  EXPECT_EQ(escaped("a\x1b\n\xff"), "a\\x1b\\n\\xff");
  EXPECT_THAT(svg({.title = "</svg><b>", .curves = {{.name = "\"x", .points = {{1, 1}}}}}),
              ::testing::AllOf(Not(HasSubstr("<b>")), Not(HasSubstr("\"\"x"))));
}

}  // namespace
}  // namespace lockstep::page
