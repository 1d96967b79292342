#include "lockstep/metrics/meters.h"

#include <gtest/gtest.h>

namespace lockstep::metrics {
namespace {

TEST(RunningMean, WeighsItsValues) {
  RunningMean mean;
  EXPECT_EQ(mean.mean(), 0);
  mean.add(1);
  mean.add(4, 2);
  EXPECT_EQ(mean.mean(), 3);
  mean.reset();
  mean.add(7);
  EXPECT_EQ(mean.mean(), 7);
}

TEST(Throughput, CountsFromTheStartUntilTheWindowIsFull) {
  Throughput meter(100, 10);
  EXPECT_EQ(meter.per_second(), 0);
  meter.add(100, 5);
  EXPECT_EQ(meter.per_second(), 0);  // no time has passed
  meter.add(102, 15);
  EXPECT_EQ(meter.per_second(), 10);
}

TEST(Throughput, ForgetsWhatIsOlderThanTheWindow) {
  Throughput meter(0, 10);
  for (int second = 1; second <= 20; ++second) meter.add(second, 1);
  EXPECT_EQ(meter.per_second(), 1);
  for (int second = 21; second <= 30; ++second) meter.add(second, 8);
  EXPECT_EQ(meter.per_second(), 8);
}

TEST(Throughput, OneSlowStepIsLongerThanTheWindow) {
  Throughput meter(0, 10);
  meter.add(100, 50);
  EXPECT_EQ(meter.per_second(), 0.5);
  meter.add(200, 100);
  EXPECT_EQ(meter.per_second(), 1);
}

}  // namespace
}  // namespace lockstep::metrics
