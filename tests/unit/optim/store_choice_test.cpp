// Which stores are kept, by given times.

#include "lockstep/optim/store_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

namespace lockstep::optim {
namespace {

// The seconds that step `step` takes with these stores.
using Machine = std::function<double(int step, Stores stores)>;

Machine machine(double plain, double streaming) {
  return [=](int, Stores stores) { return stores == Stores::plain ? plain : streaming; };
}

// What each of `steps` steps was made with.
std::vector<Stores> run(StoreChoice& choice, int steps, const Machine& machine, int first = 0) {
  std::vector<Stores> used;
  for (int step = first; step < first + steps; ++step) {
    used.push_back(choice.stores());
    choice.done(choice.is_timed() ? machine(step, choice.stores()) : -1e9);  // what is not wanted is not looked at
  }
  return used;
}

TEST(StoreChoice, TriesBothAndKeepsTheFaster) {
  for (const auto& [faster, times] :
       {std::pair(Stores::plain, machine(1e-3, 2e-3)), std::pair(Stores::streaming, machine(2e-3, 1e-3))}) {
    StoreChoice choice;
    const std::vector<Stores> tried = run(choice, StoreChoice::kFirstTrial, times);
    EXPECT_EQ(std::count(tried.begin(), tried.end(), Stores::plain), StoreChoice::kFirstTrial / 2);
    for (const Stores stores : run(choice, 64, times)) EXPECT_EQ(stores, faster);
  }
}

TEST(StoreChoice, TheFirstStepAfterAChangeOfStoresIsNotTimed) {
  StoreChoice choice;
  Stores before = Stores::streaming;  // the first step of all finds nothing that plain stores have left
  for (int step = 0; step < 5000; ++step) {
    EXPECT_FALSE(choice.stores() != before && choice.is_timed()) << step;
    before = choice.stores();
    choice.done(1e-3);
  }
}

TEST(StoreChoice, OneStepThatWasHeldUpDecidesNothing) {
  for (const Stores faster : {Stores::plain, Stores::streaming}) {
    const Machine times = faster == Stores::plain ? machine(1.0e-3, 1.1e-3) : machine(1.1e-3, 1.0e-3);
    for (int held_up = 0; held_up < StoreChoice::kFirstTrial + 64 + 8; ++held_up) {
      StoreChoice choice;
      const auto noisy = [&](int step, Stores stores) { return times(step, stores) * (step == held_up ? 50 : 1); };
      run(choice, StoreChoice::kFirstTrial, noisy);
      EXPECT_EQ(choice.stores(), faster) << held_up;
      run(choice, 64 + 8, noisy, StoreChoice::kFirstTrial);
      EXPECT_EQ(choice.stores(), faster) << held_up;
    }
  }
}

TEST(StoreChoice, NoiseOfManyStepsIsNotTakenForADifference) {
  // Every second step is held up by anything between nothing and nine times.
  const auto times = [](int step, Stores stores) {
    return (stores == Stores::plain ? 1.2e-3 : 1.0e-3) * (1 + (step % 2) * (step * 7919 % 10));
  };
  StoreChoice choice;
  run(choice, 20'000, times);
  const std::vector<Stores> last = run(choice, 3000, times, 20'000);
  EXPECT_GT(std::count(last.begin(), last.end(), Stores::streaming), 2980);
}

// As measured beside other machines on one host: plain stores take 14 to 23 ms, streaming ones 11.9 to 22.5.
TEST(StoreChoice, PairsThatGoTheWrongWayAreOutvoted) {
  const auto wrong_after = [](int steps) {
    int wrong = 0;
    for (unsigned seed = 0; seed < 200; ++seed) {
      std::mt19937 random(seed);
      std::uniform_real_distribution<double> plain(14e-3, 23e-3), streaming(11.9e-3, 22.5e-3);
      StoreChoice choice;
      run(choice, steps,
          [&](int, Stores stores) { return stores == Stores::plain ? plain(random) : streaming(random); });
      const std::vector<Stores> used = run(choice, 40, machine(1e-3, 1e-3), steps);  // a pair of them at most
      wrong += std::count(used.begin(), used.end(), Stores::plain) > 20;
    }
    return wrong;
  };
  EXPECT_LT(wrong_after(300), 20);
  EXPECT_LT(wrong_after(20'000), 6);
}

TEST(StoreChoice, EqualTimesChangeNothing) {
  StoreChoice choice;
  run(choice, StoreChoice::kFirstTrial, machine(1e-3, 0.99e-3));
  EXPECT_EQ(choice.stores(), Stores::plain);
}

TEST(StoreChoice, LooksAgainAndFollowsTheMachine) {
  StoreChoice choice;
  run(choice, 1000, machine(1e-3, 2e-3));
  EXPECT_EQ(choice.stores(), Stores::plain);
  run(choice, 5 * StoreChoice::kLongestPause, machine(2e-3, 1e-3), 1000);  // somebody else has come to the caches
  EXPECT_EQ(choice.stores(), Stores::streaming);
}

// Steps by the slower stores, and what timed steps read back: one array, where plain SGD moves three.
TEST(StoreChoice, LookingAgainCostsLessThanAHundredth) {
  constexpr double read_back = 1e-3 / 3;
  for (const double slower : {1.1, 1.7, 3.0}) {
    StoreChoice choice;
    const Machine times = machine(slower * 1e-3, 1e-3);
    run(choice, 2000, times);
    double seconds = 0;
    constexpr int steps = 10 * StoreChoice::kLongestPause;
    for (int step = 0; step < steps; ++step) {
      if (choice.is_timed()) seconds += read_back;
      for (const Stores stores : run(choice, 1, times, 2000 + step)) seconds += times(0, stores);
    }
    EXPECT_LT(seconds, 1.01 * steps * 1e-3) << slower;
  }
}

TEST(StoreChoice, RanksTryAtTheSameStepsWhateverTheyKeep) {
  StoreChoice one, other;
  for (int step = 0; step < 5000; ++step) {
    EXPECT_EQ(one.is_timed(), other.is_timed()) << step;
    if (one.is_timed()) {
      EXPECT_EQ(one.stores(), other.stores()) << step;
    }
    one.done(one.stores() == Stores::plain ? 1 : 2);
    other.done(other.stores() == Stores::plain ? 2 : 1);
  }
  EXPECT_NE(one.stores(), other.stores());
}

TEST(RunUpdate, ReadsBackOnlyWhenTheTimeIsWanted) {
  StoreChoice choice;
  int updates = 0, reads = 0, timed = 0;
  for (int step = 0; step < StoreChoice::kFirstTrial + 20; ++step) {
    timed += choice.is_timed();
    const Stores wanted = choice.stores();
    run_update(
        choice, 2,
        [&](Stores stores) {
          EXPECT_EQ(stores, wanted);
          ++updates;
        },
        [&] { ++reads; });
  }
  EXPECT_EQ(updates, StoreChoice::kFirstTrial + 20);
  EXPECT_EQ(reads, timed);
  EXPECT_GT(timed, 0);
}

}  // namespace
}  // namespace lockstep::optim
