#include "lockstep/page/read_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/page/page.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::page {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::usage_error;

class ReadRun : public ::testing::Test {
 protected:
  RunRecord read(const std::string& lines) const {
    folder_.write("run/metrics.jsonl", lines);
    return read_run(folder_.file("run"));
  }
  testing::ScratchFolder folder_;
};

std::vector<double> values(const Points& points) {
  std::vector<double> all;
  for (const Point& point : points) all.push_back(point.value);
  return all;
}

TEST_F(ReadRun, AStepToldAgainAfterARestartStandsOnce) {
  const RunRecord run = read(
      "{\"event\":\"start\",\"time\":10,\"model\":\"mlp\",\"seed\":3,\"restart_count\":0,\"first_step\":1}\n"
      "{\"event\":\"train\",\"time\":11,\"step\":1,\"epoch\":1,\"loss\":2.5,\"lr\":0.1,\"stores\":\"plain\"}\n"
      "{\"event\":\"train\",\"time\":12,\"step\":2,\"epoch\":1,\"loss\":\"nan\",\"lr\":0.1}\n"
      "{\"event\":\"start\",\"time\":15,\"restart_count\":1,\"first_step\":2}\n"
      "{\"event\":\"fault\",\"time\":15,\"restart_count\":1,\"step\":1,\"cause\":\"rank 0\",\"lost_seconds\":3}\n"
      "{\"event\":\"fault\",\"time\":15,\"restart_count\":2,\"step\":1}\n"
      "{\"event\":\"train\",\"time\":16,\"step\":2,\"epoch\":1,\"loss\":2.0,\"lr\":0.1}\n"
      "{\"event\":\"train\",\"time\":17,\"step\":3,\"epoch\":1,\"loss\":\"inf\",\"lr\":0.1}\n"
      "{\"event\":\"eval\",\"time\":18,\"step\":3,\"epoch\":1,\"loss\":1.5,\"top1\":0.5,\"samples\":7}\n"
      "{\"event\":\"eval\",\"time\":19,\"step\":2,\"epoch\":1,\"top1\":0.75,\"samples\":7,\"best_on\":\"test\"}\n"
      "{\"event\":\"done\",\"time\":20,\"seconds\":5,\"steps\":3,\"attempt_steps\":2,\"weights_hash\":\"ab\"}\n");
  EXPECT_EQ(run.name, "run");
  EXPECT_EQ(values(run.train.at("loss")).size(), 3u);
  EXPECT_EQ(run.train.at("loss")[1].value, 2.0);
  EXPECT_TRUE(std::isnan(RunRecord::last(run.train.at("loss"))));
  EXPECT_FALSE(run.train.contains("stores"));
  EXPECT_THAT(values(run.eval.at("top1")), ElementsAre(0.5)) << "the best checkpoint's is no point of the curve";
  EXPECT_EQ(run.best_eval.at("top1"), 0.75);
  ASSERT_EQ(run.starts.size(), 2u);
  EXPECT_EQ(run.starts[1].first_step, 2);
  ASSERT_EQ(run.faults.size(), 2u);
  EXPECT_EQ(run.faults[0].cause, "rank 0");
  EXPECT_EQ(run.faults[0].lost, 3);
  EXPECT_EQ(run.faults[1].cause, "") << "not known";
  EXPECT_TRUE(std::isnan(run.faults[1].lost));
  EXPECT_TRUE(run.done);
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(run.seconds, 10);
  EXPECT_EQ(run.weights_hash, "ab");
  EXPECT_THAT(run.facts, ::testing::Contains(std::pair<std::string, std::string>("model", "mlp")));
}

TEST_F(ReadRun, WhatWasLeftOutIsAddedOverTheStarts) {
  const RunRecord run = read(
      "{\"event\":\"start\",\"time\":1}\n"
      "{\"event\":\"checkpoint\",\"time\":2,\"step\":4,\"path\":\"a\",\"skipped\":1}\n"
      "{\"event\":\"checkpoint\",\"time\":3,\"step\":8,\"path\":\"b\",\"skipped\":3}\n"
      "{\"event\":\"start\",\"time\":4}\n"
      "{\"event\":\"start\",\"time\":5}\n"
      "{\"event\":\"checkpoint\",\"time\":6,\"step\":12,\"path\":\"c\",\"skipped\":0}\n"
      "{\"event\":\"checkpoint\",\"time\":7,\"step\":16,\"path\":\"d\",\"skipped\":2}\n");
  std::vector<std::int64_t> skipped;
  for (const Save& save : run.saves) skipped.push_back(save.skipped);
  EXPECT_THAT(skipped, ElementsAre(1, 3, 3, 5));
}

TEST_F(ReadRun, ALineThatIsBeingWrittenIsLeftOut) {
  const RunRecord run = read("{\"event\":\"start\",\"time\":1}\n{\"event\":\"train\",\"time\":2,\"st");
  EXPECT_EQ(run.starts.size(), 1u);
  EXPECT_TRUE(run.train.empty());
  EXPECT_FALSE(run.done);
}

TEST_F(ReadRun, NumbersBeyondAllMeasureAreBorne) {
  const RunRecord run = read(
      "{\"event\":\"start\",\"time\":-1e300,\"restart_count\":1e300}\n"
      "{\"event\":\"train\",\"time\":1e300,\"step\":1e300,\"loss\":1e308}\n"
      "{\"event\":\"train\",\"time\":1e300,\"step\":-1e300,\"loss\":-1e308}\n");
  EXPECT_EQ(run.steps, -9007199254740992);
  EXPECT_THAT(html({run}), HasSubstr("</html>"));
}

TEST_F(ReadRun, ANumberThatIsNoneMayHaveASign) {
  const RunRecord run = read("{\"event\":\"train\",\"time\":1,\"step\":1,\"loss\":\"-nan\"}\n");
  ASSERT_TRUE(run.train.contains("loss"));
  EXPECT_TRUE(std::isnan(run.train.at("loss")[0].value));
}

TEST_F(ReadRun, WhatIsNestedDeepIsRefused) {
  const std::string good = "{\"event\":\"start\",\"time\":1}\n";
  for (const std::size_t depth : {9, 100'000}) {
    const std::string deep = std::string(depth, '[') + std::string(depth, ']');
    EXPECT_THAT(usage_error([&] { read("{\"event\":\"start\",\"time\":1,\"x\":" + deep + "}\n"); }), HasSubstr(":1: "));
    folder_.write("run/mistakes.json", deep);
    EXPECT_THAT(usage_error([&] {
                  read(good + "{\"event\":\"answers\",\"time\":1,\"step\":1,\"classes\":[],\"mistake_samples\":[]}\n");
                }),
                HasSubstr("mistakes.json"));
  }
  EXPECT_THAT(read("{\"event\":\"start\",\"time\":1,\"x\":[[1]]}\n").facts,
              ElementsAre(std::pair<std::string, std::string>("x", "[[1]]")));
}

TEST_F(ReadRun, WhatIsWrongIsNamed) {
  const std::string file = folder_.file("run/metrics.jsonl");
  const std::string good = "{\"event\":\"start\",\"time\":1}\n";
  EXPECT_EQ(usage_error([&] { read(good + "what\n"); }), file + ":2: 'what' is no event of a run");
  for (const char* line :
       {"[]\n", "{}\n", "\n", "{\"event\":\"train\",\"time\":\"x\",\"step\":1}\n", "{\"event\":\"train\",\"time\":1}\n",
        "{\"event\":1,\"time\":1}\n", "{\"event\":\"done\",\"time\":1,\"steps\":\"x\"}\n", "\xff\n",
        "{\"event\":\"fault\",\"time\":1,\"cause\":3}\n", "{\"event\":\"fault\",\"time\":1,\"lost_seconds\":\"x\"}\n"})
    EXPECT_THAT(usage_error([&] { read(good + line); }), HasSubstr(file + ":2: ")) << line;
  EXPECT_THAT(usage_error([&] { read(""); }), HasSubstr("no event in it"));
  EXPECT_THAT(usage_error([&] { read_run(folder_.file("none")); }), HasSubstr("none'"));
}

}  // namespace
}  // namespace lockstep::page
