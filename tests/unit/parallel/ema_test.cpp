#include "lockstep/parallel/ema.h"

#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

// Steps 1 to `steps`: "." left, "c" copied, "m" averaged.
std::string text(const EmaOptions& options, int steps) {
  std::string all;
  for (int step = 1; step <= steps; ++step) all += ".cm"[int(averaging_at(options, std::uint64_t(step)))];
  return all;
}

// torchvision's train_one_epoch(), whose n_averaged is 0 as long as warm-up lasts.
std::string torchvisions(int interval, int steps_per_epoch, int epochs, int warmup_epochs) {
  std::string all;
  int n_averaged = 0;
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (int i = 0; i < steps_per_epoch; ++i) {
      if (i % interval != 0) {
        all += '.';
        continue;
      }
      all += n_averaged++ == 0 ? 'c' : 'm';
      if (epoch < warmup_epochs) n_averaged = 0;
    }
  return all;
}

TEST(Ema, TakesInEveryIntervalFromTheFirstStepOn) {
  EXPECT_EQ(text({}, 5), "cmmmm");
  EXPECT_EQ(text({.interval = 3}, 10), "c..m..m..m");
}

TEST(Ema, CopiesInWarmUpAndOnceBehindIt) {
  EXPECT_EQ(text({.warmup_steps = 3}, 6), "ccccmm");
  EXPECT_EQ(text({.interval = 2, .warmup_steps = 3}, 8), "c.c.c.m.");
}

TEST(Ema, IsTorchvisionsWithEpochs) {
  for (const int interval : {1, 2, 3, 32})
    for (const int epoch : {1, 4, 7})
      for (const int warmup : {0, 1, 2}) {
        const EmaOptions options{.interval = std::uint64_t(interval),
                                 .warmup_steps = std::uint64_t(warmup * epoch),
                                 .steps_per_epoch = std::uint64_t(epoch)};
        EXPECT_EQ(text(options, 5 * epoch), torchvisions(interval, epoch, 5, warmup))
            << interval << ' ' << epoch << ' ' << warmup;
      }
}

TEST(Ema, RefusesWhatIsOutOfRange) {
  EXPECT_THROW(check({.decay = 1.5}), UsageError);
  EXPECT_THROW(check({.decay = -0.1}), UsageError);
  EXPECT_THROW(check({.interval = 0}), UsageError);
  check({.decay = 0});
}

}  // namespace
}  // namespace lockstep::parallel
