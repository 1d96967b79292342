#include "lockstep/train/meter.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

TEST(Meter, AnEventTellsWhatCameSinceTheLast) {
  Meter meter{.time = {.data = 1, .compute = 2, .step = 4}, .samples = 10};
  TrainEvent event;
  meter.tell(event);
  EXPECT_EQ(event.samples, 10);
  EXPECT_EQ(event.time.total(), 7);
  EXPECT_EQ(event.time.compute, 2);
  meter.time.step = 3;
  meter.samples = 5;
  meter.tell(event);
  EXPECT_EQ(event.samples, 5);
  EXPECT_EQ(event.time.total(), 3);
  EXPECT_EQ(meter.told_samples, 15);
  EXPECT_EQ(meter.told_seconds, 10);
  EXPECT_EQ(meter.samples, 0);
}

TEST(Meter, WorkIsToldOnce) {
  Meter meter;
  EXPECT_EQ(meter.untold({.prepare = 3, .decode = 1}).prepare, 3);
  const InputWork work = meter.untold({.prepare = 5, .decode = 1.5});
  EXPECT_EQ(work.prepare, 2);
  EXPECT_EQ(work.decode, 0.5);
}

TEST(Meter, WaitsForOtherRanksAreToldOnce) {
  Meter meter;
  EXPECT_EQ(meter.untold_exchange(3), 3);
  EXPECT_EQ(meter.untold_exchange(5), 2);
}

TEST(Meter, TimedAddsItsScope) {
  double counter = 1;
  { const Timed timed(counter); }
  EXPECT_GE(counter, 1);
}

}  // namespace
}  // namespace lockstep::train
