// The parts of the benchmarks that compute: shapes, statistics, the verdict of a report.

#include "benchmarks/step/report.h"

#include <gmock/gmock.h>

#include "benchmarks/support/machine.h"
#include "benchmarks/support/shapes.h"
#include "benchmarks/support/statistics.h"

namespace lockstep::bench {
namespace {

using testing::HasSubstr;

TEST(Shapes, AreThoseOfResNet50) {
  const Shapes shapes = resnet50_shapes();
  EXPECT_EQ(shapes.size(), 161u);
  EXPECT_EQ(weights_of(shapes), 25'557'032);
  EXPECT_EQ(shapes.front().second, (std::vector<std::int64_t>{64, 3, 7, 7}));
}

TEST(Machine, NamesTheInstructionSetsThatDecideHowFastProductsAre) {
  EXPECT_EQ(instruction_sets("fpu avx avx2 avx512fp16 amx_bf16"), " with avx2, amx_bf16");
  EXPECT_EQ(instruction_sets("avx512f"), " with avx512f");
  EXPECT_EQ(instruction_sets("unknown"), "");
}

TEST(Shapes, NarrowOnesAreAsMany) {
  EXPECT_EQ(resnet50_shapes(16).size(), 161u);
  EXPECT_LT(weights_of(resnet50_shapes(16)), 200'000);
}

TEST(Shapes, OfTheOtherModelsAddUp) {
  EXPECT_EQ(resnet18_cifar_shapes().size(), 62u);
  EXPECT_EQ(weights_of(resnet18_cifar_shapes()), 11'173'962);
  EXPECT_EQ(weights_of(square_mlp_shapes()), 100'687'872);
}

TEST(Spread, IsOfTheSortedValues) {
  const Spread spread = spread_of({11, 1, 10, 2, 9, 3, 8, 4, 7, 5, 6});
  EXPECT_DOUBLE_EQ(spread.p10, 2);
  EXPECT_DOUBLE_EQ(spread.median, 6);
  EXPECT_DOUBLE_EQ(spread.p90, 10);
}

TEST(Spread, LiesBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(spread_of({1, 2}).median, 1.5);
  EXPECT_DOUBLE_EQ(spread_of({1, 2}).p90, 1.9);
}

TEST(Spread, OfOneValueIsThatValue) {
  const Spread spread = spread_of({3});
  EXPECT_EQ(spread.p10, 3);
  EXPECT_EQ(spread.median, 3);
  EXPECT_EQ(spread.p90, 3);
}

Section example() {
  return {"Adam",
          {{"lockstep step(), huge pages", "ours", "2 MiB", 8e8, {0.02, 0.03, 0.02}},
           {"lockstep step(), small pages", "ours", "4 KiB", 8e8, {0.04, 0.04, 0.04}},
           {"update + commit, in place", "lever", "2 MiB", 8e8, {0.001, 0.001, 0.001}},
           {"copy, memcpy, huge pages", "floor", "2 MiB", 5e8, {0.02, 0.02, 0.02}},
           {"copy, streaming stores, huge pages", "floor", "2 MiB", 5e8, {0.01, 0.01, 0.01}},
           {"Gloo + torch::optim, 1 thread, small pages", "installed", "4 KiB", 0, {0.2, 0.2, 0.2}},
           {"Gloo + torch::optim, 2 threads, small pages", "installed", "4 KiB", 0, {0.18, 0.18, 0.3}},
           {"Gloo + fused operator, 1 thread, small pages", "tuned", "4 KiB", 0, {0.16, 0.16, 0.16}}},
          "a net",
          25'600'000};
}

TEST(Verdict, ComparesTheBestOfEachKind) {
  const Verdict verdict = verdict_of(example());
  EXPECT_DOUBLE_EQ(verdict.step, 0.02);
  EXPECT_DOUBLE_EQ(verdict.step_rate, 4e10);
  EXPECT_DOUBLE_EQ(verdict.copy_rate, 5e10);
  EXPECT_DOUBLE_EQ(verdict.over_installed, 9);
  EXPECT_DOUBLE_EQ(verdict.over_peer, 8);
}

TEST(Verdict, TheFastestPeerIsOneByAnyName) {
  Section section = example();
  section.timings.push_back({"a library of next year", "tuned", "4 KiB", 0, {0.1, 0.1, 0.1}});
  EXPECT_DOUBLE_EQ(verdict_of(section).over_peer, 5);
  section.timings.push_back({"a plain loop", "installed", "4 KiB", 0, {0.08, 0.08, 0.08}});
  EXPECT_DOUBLE_EQ(verdict_of(section).over_installed, 4);
  EXPECT_DOUBLE_EQ(verdict_of(section).over_peer, 4);
}

TEST(Report, StatesTheVerdictAndEveryContender) {
  Report report{.commit = "abc", .command = "bench --x", .ranks = 2, .sections = {example()}};
  report.machine.cpu = "some CPU";
  const std::string text = to_markdown(report);
  EXPECT_THAT(text, HasSubstr("some CPU"));
  EXPECT_THAT(text, HasSubstr("commit: abc"));
  EXPECT_THAT(text, HasSubstr("## 25.6 M weights (a net), Adam"));
  EXPECT_THAT(text, HasSubstr("| 25.6 M (a net) | Adam | 20.00 | 80 % | 9.0 | 8.0 |"));
  EXPECT_THAT(text, HasSubstr("20.00 ms: 80 % of the copy bandwidth (40.0 of 50.0 GB/s by state bytes), 9.0 times"));
  EXPECT_THAT(text, HasSubstr("| lockstep step(), small pages | 4 KiB | 40.00 | 40.00-40.00 | 2.00 | 20.0 | 40 % |"));
  EXPECT_THAT(text, HasSubstr("| Gloo + fused operator, 1 thread, small pages | 4 KiB | 160.00 |"));
  EXPECT_THAT(to_json(report), HasSubstr("\"over_peer\": 8"));
}

TEST(Report, SectionsTravelAsText) {
  const Section section = example();
  const Section read = deserialize(serialize(section));
  EXPECT_EQ(read.optimizer, section.optimizer);
  EXPECT_EQ(read.model, section.model);
  EXPECT_EQ(read.weights, section.weights);
  ASSERT_EQ(read.timings.size(), section.timings.size());
  for (std::size_t i = 0; i < read.timings.size(); ++i) {
    EXPECT_EQ(read.timings[i].name, section.timings[i].name);
    EXPECT_EQ(read.timings[i].kind, section.timings[i].kind);
    EXPECT_EQ(read.timings[i].page_size, section.timings[i].page_size);
    EXPECT_EQ(read.timings[i].bytes, section.timings[i].bytes);
    EXPECT_EQ(read.timings[i].seconds, section.timings[i].seconds);
  }
}

}  // namespace
}  // namespace lockstep::bench
