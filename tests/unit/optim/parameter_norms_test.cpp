// Norms over a parameter, and what LARS and LAMB make of them, against float64.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "lockstep/optim/kernels.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/update.h"

namespace lockstep::optim {
namespace {

constexpr std::size_t kCount = 1024;

struct alignas(64) Numbers {
  float values[kCount];
};

Numbers random_numbers(unsigned seed) {
  Numbers made;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& x : made.values) x = normal(random);
  return made;
}

const Numbers& weights() {
  static const Numbers numbers = random_numbers(1);
  return numbers;
}
const Numbers& gradients() {
  static const Numbers numbers = random_numbers(2);
  return numbers;
}

struct Example {
  Numbers m{}, v{}, w = weights();
  const void* slot = gradients().values;
  Arrays arrays() {
    return {.gradients = &slot,
            .from_weights = w.values,
            .from_state = {m.values, v.values},
            .to_weights = w.values,
            .to_state = {m.values, v.values}};
  }
};

double squares(const Numbers& numbers, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += double(numbers.values[i]) * double(numbers.values[i]);
  return sum;
}

TEST(ParameterNorms, AreTheSameBitsInEveryBuildAndThoseOfFloat64) {
  Example example;
  const Rule lars = rule_for(LARSOptions{.weight_decay = 0.1}, 1), lamb = rule_for(LAMBOptions{.maximize = true}, 2);
  for (const Rule& rule : {lars, lamb}) {
    const void* numbers = std::visit([](const auto& one) -> const void* { return &one; }, rule);
    const SquareSums plain = measure_scalar(rule.index(), numbers, example.arrays(), 32, 512);
    EXPECT_NEAR(plain.weights, squares(weights(), 32, 512), 1e-9);
    EXPECT_GT(plain.measured, 0);
    for (Measure* const measure : {measure_avx2, measure_avx512}) {
      if (measure == measure_avx2 && !__builtin_cpu_supports("avx2")) continue;
      if (measure == measure_avx512 && !__builtin_cpu_supports("avx512f")) continue;
      const SquareSums sums = measure(rule.index(), numbers, example.arrays(), 32, 512);
      EXPECT_EQ(sums.weights, plain.weights);
      EXPECT_EQ(sums.measured, plain.measured);
    }
  }
  EXPECT_NEAR(square_sums(lars, example.arrays(), 0, 64).measured, squares(gradients(), 0, 64), 1e-9);
  EXPECT_EQ(example.m.values[40], 0) << "measuring writes nothing";
}

// The weights and state after a step, with what goes with them.
struct Target {
  Numbers m{}, v{}, w{}, average{};
  alignas(64) std::uint16_t half[kCount] = {};
  Arrays from(Example& example) {
    Arrays arrays = example.arrays();
    arrays.to_weights = w.values;
    arrays.to_state[0] = m.values, arrays.to_state[1] = v.values;
    arrays.to_bf16 = half;
    arrays.from_average = gradients().values, arrays.to_average = average.values;
    arrays.averaging = Averaging::mean, arrays.decay = 0.75;
    return arrays;
  }
  bool operator==(const Target& other) const {
    const auto same = [](const auto& a, const auto& b) { return std::memcmp(&a, &b, sizeof a) == 0; };
    return same(m, other.m) && same(v, other.v) && same(w, other.w) && same(average, other.average) &&
           same(half, other.half);
  }
};

struct TwoHalves {
  Begin* begin;
  Kernel* finish;
};

std::vector<TwoHalves> builds_of_halves() {
  std::vector<TwoHalves> builds{{begin_scalar, finish_scalar}};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) builds.push_back({begin_avx2, finish_avx2});
  if (__builtin_cpu_supports("avx512f")) builds.push_back({begin_avx512, finish_avx512});
  return builds;
}

TEST(ParameterNorms, AStepInTwoHalvesHasTheBitsOfAWholeOne) {
  Example example{.m = random_numbers(3), .v = random_numbers(4)};
  for (float& v : example.v.values) v *= v;  // a mean of squares
  const Rule rule = rule_for(LAMBOptions{.lr = 0.1}, 3);
  Target whole;
  const SquareSums sums = square_sums(rule, whole.from(example), 0, kCount);
  const Rule normed = with_norms(rule, &sums, 1);
  update(normed, whole.from(example), 0, kCount);
  for (const TwoHalves& build : builds_of_halves()) {
    for (const bool streaming : {false, true}) {
      Target halves;
      const Arrays arrays = halves.from(example);
      ASSERT_TRUE(has_halves(rule, arrays));
      const SquareSums of_begin = build.begin(rule.index(), &std::get<LAMBRule>(rule), arrays, 0, kCount, streaming);
      EXPECT_EQ(of_begin.weights, sums.weights);
      EXPECT_EQ(of_begin.measured, sums.measured);
      build.finish(normed.index(), &std::get<LAMBRule>(normed), arrays, 0, kCount, streaming);
      EXPECT_TRUE(halves == whole);
    }
  }
}

TEST(ParameterNorms, AStepInPlaceOrThatReadsTheGradientsAgainHasNoHalves) {
  Example example;
  Target target;
  EXPECT_TRUE(has_halves(rule_for(LAMBOptions{}, 1), target.from(example)));
  EXPECT_FALSE(has_halves(rule_for(LAMBOptions{}, 1), example.arrays()));
  EXPECT_FALSE(has_halves(rule_for(LARSOptions{}, 1), target.from(example)));
  EXPECT_FALSE(has_halves(rule_for(AdamOptions{}, 1), target.from(example)));
}

TEST(ParameterNorms, OtherRulesHaveNone) {
  Example example;
  EXPECT_EQ(square_sums(rule_for(SGDOptions{}, 1), example.arrays(), 0, 64).weights, 0);
  const SquareSums sums{4, 9};
  EXPECT_EQ(std::get<SGDRule>(with_norms(rule_for(SGDOptions{.lr = 2}, 1), &sums, 1)).negative_lr, -2);
}

TEST(ParameterNorms, AddUpOverTheBlocksOfAParameter) {
  const SquareSums sums[] = {{4, 1}, {5, 3}, {0, 0}};
  const Rule rule = with_norms(rule_for(LARSOptions{.weight_decay = 0.5, .trust_coefficient = 0.1}, 1), sums, 3);
  EXPECT_FLOAT_EQ(std::get<LARSRule>(rule).ratio, float(0.1 * 3 / (2 + 0.5 * 3 + 1e-8)));
}

TEST(ParameterNorms, ARatioNeedsBothNormsAndWeightDecay) {
  const auto ratio = [](const LARSOptions& options, SquareSums sums) {
    return std::get<LARSRule>(with_norms(rule_for(options, 1), &sums, 1)).ratio;
  };
  EXPECT_EQ(ratio({.weight_decay = 0.1}, {0, 4}), 1);
  EXPECT_EQ(ratio({.weight_decay = 0.1}, {4, 0}), 1);
  EXPECT_EQ(ratio({}, {4, 4}), 1);
  EXPECT_NE(ratio({.always_adapt = true}, {4, 4}), 1);
  EXPECT_EQ(ratio({.weight_decay = 0.1}, {NAN, 4}), 1);
}

// The papers' formulas in float64, over 100 steps with gradients that are given.
struct Reference {
  std::vector<double> w, m, v;
  Reference() : w(weights().values, weights().values + kCount), m(kCount), v(kCount) {}
  static double norm(const std::vector<double>& x) {
    double sum = 0;
    for (const double one : x) sum += one * one;
    return std::sqrt(sum);
  }
  void lars(const LARSOptions& o, const std::vector<double>& g, bool first) {
    const bool adapts = o.weight_decay != 0 || o.always_adapt;
    const double ratio = adapts ? o.trust_coefficient * norm(w) / (norm(g) + o.weight_decay * norm(w) + o.eps) : 1;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double d = ratio * ((o.maximize ? -g[i] : g[i]) + o.weight_decay * w[i]);
      m[i] = first ? d : o.momentum * m[i] + (1 - o.dampening) * d;
      w[i] -= o.lr * (o.momentum == 0 ? d : o.nesterov ? d + o.momentum * m[i] : m[i]);
    }
  }
  void lamb(const LAMBOptions& o, const std::vector<double>& g, int step) {
    std::vector<double> d(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      m[i] = o.betas[0] * m[i] + (1 - o.betas[0]) * (o.maximize ? -g[i] : g[i]);
      v[i] = o.betas[1] * v[i] + (1 - o.betas[1]) * g[i] * g[i];
      d[i] = m[i] / (1 - std::pow(o.betas[0], step)) / (std::sqrt(v[i] / (1 - std::pow(o.betas[1], step))) + o.eps) +
             o.weight_decay * w[i];
    }
    const double ratio = o.weight_decay != 0 || o.always_adapt ? norm(w) / norm(d) : 1;
    for (std::size_t i = 0; i < kCount; ++i) w[i] -= o.lr * ratio * d[i];
  }
};

template <class Options, class Step>
void expect_float64s_weights(const Options& options, Step step_reference) {
  Example example;
  Reference reference;
  Numbers now;
  example.slot = now.values;
  for (int step = 1; step <= 100; ++step) {
    now = random_numbers(unsigned(100 + step));
    step_reference(reference, std::vector<double>(now.values, now.values + kCount), step);
    const Rule rule = rule_for(options, std::uint64_t(step));
    const SquareSums sums[] = {square_sums(rule, example.arrays(), 0, 512),
                               square_sums(rule, example.arrays(), 512, kCount)};
    update(with_norms(rule, sums, 2), example.arrays(), 0, kCount);
  }
  const double largest = 4;
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_NEAR(example.w.values[i], reference.w[i], 1e-6 * largest) << i;
}

TEST(LARS, FollowsFloat64) {
  for (const LARSOptions& options :
       {LARSOptions{.lr = 0.5, .momentum = 0.9, .weight_decay = 1e-2, .trust_coefficient = 0.01},
        LARSOptions{.lr = 0.5, .weight_decay = 0.1, .trust_coefficient = 0.02, .eps = 5, .maximize = true},
        LARSOptions{.lr = 0.2, .momentum = 0.8, .dampening = 0.3, .trust_coefficient = 0.05, .always_adapt = true},
        LARSOptions{.lr = 0.2, .momentum = 0.8, .weight_decay = 1e-2, .nesterov = true, .trust_coefficient = 0.03},
        LARSOptions{.lr = 0.002, .momentum = 0.5}})
    expect_float64s_weights(options, [&](Reference& reference, const std::vector<double>& g, int step) {
      reference.lars(options, g, step == 1);
    });
}

TEST(LAMB, FollowsFloat64) {
  for (const LAMBOptions& options :
       {LAMBOptions{.lr = 0.01}, LAMBOptions{.lr = 0.005, .betas = Betas{0.8, 0.99}, .maximize = true},
        LAMBOptions{.lr = 0.005, .eps = 0.1, .weight_decay = 0, .always_adapt = true},
        LAMBOptions{.lr = 0.002, .weight_decay = 0}})
    expect_float64s_weights(options, [&](Reference& reference, const std::vector<double>& g, int step) {
      reference.lamb(options, g, step);
    });
}

}  // namespace
}  // namespace lockstep::optim
