// The kernel against the formulas of rule.h written out in the plainest way, bit for bit, in
// all builds that this machine can run.

#include "lockstep/optim/update.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "lockstep/optim/kernels.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {
namespace {

constexpr std::size_t kElements = 4096;

struct alignas(64) Block {
  float values[kElements];
};

struct Problem {
  explicit Problem(int shards) : gradients(std::size_t(shards)) {
    std::mt19937 random(unsigned(7 + shards));
    std::normal_distribution<float> normal;
    for (Block& block : gradients)
      for (float& x : block.values) x = normal(random);
    for (float& x : weights.values) x = normal(random);
    for (float& x : first.values) x = normal(random) * 0.1f;
    for (float& x : second.values) x = std::abs(normal(random)) * 0.01f;
    for (const Block& block : gradients) pointers.push_back(block.values);
  }
  Arrays arrays(Block& w, Block& s0, Block& s1) const {
    return {.gradients = pointers.data(),
            .shards = int(pointers.size()),
            .from_weights = weights.values,
            .from_state = {first.values, second.values},
            .to_weights = w.values,
            .to_state = {s0.values, s1.values}};
  }
  float mean(std::size_t i) const {
    const std::function<float(int, int)> tree = [&](int lo, int hi) -> float {
      if (hi - lo == 1) return pointers[std::size_t(lo)][i];
      int half = 1;
      while (half * 2 < hi - lo) half *= 2;
      return tree(lo, lo + half) + tree(lo + half, hi);
    };
    return tree(0, int(pointers.size())) * (1.0f / float(pointers.size()));
  }

  std::vector<Block> gradients;
  std::vector<const float*> pointers;
  Block weights, first, second;
};

struct Expected {
  float w, s0, s1;
};

Expected formula(const SGDRule& r, const Problem& p, std::size_t i) {
  const float w = p.weights.values[i];
  float g = p.mean(i);
  if (r.weight_decay != 0) g = std::fma(w, r.weight_decay, g);
  float m = p.first.values[i];
  if (r.momentum != 0) {
    m = r.first ? g : std::fma(g, r.gradient_weight, m * r.momentum);
    g = r.nesterov ? std::fma(m, r.momentum, g) : m;
  }
  return {std::fma(g, r.negative_lr, w), m, 0};
}

Expected formula(const AdamRule& r, const Problem& p, std::size_t i) {
  const float w = p.weights.values[i] * r.decoupled_decay;
  float g = p.mean(i);
  if (r.weight_decay != 0) g = std::fma(w, r.weight_decay, g);
  const float m0 = p.first.values[i];
  const float m = std::fma(r.lerp, g - m0, r.lerp_from_gradient ? g : m0);
  const float square = r.one_minus_beta2 * g;
  const float v = std::fma(square, g, p.second.values[i] * r.beta2);
  const float denominator = std::sqrt(v) / r.bias_correction2_sqrt + r.eps;
  return {w + r.negative_step_size * m / denominator, m, v};
}

std::vector<Rule> rules() {
  return {rule_for(SGDOptions{.lr = 0.1}, 1),
          rule_for(SGDOptions{.lr = 0.1, .weight_decay = 0.01}, 3),
          rule_for(SGDOptions{.lr = 0.1, .momentum = 0.9}, 1),
          rule_for(SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.3}, 2),
          rule_for(SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}, 2),
          rule_for(AdamOptions{.lr = 0.01}, 1),
          rule_for(AdamOptions{.lr = 0.01, .weight_decay = 0.1}, 17),
          rule_for(AdamOptions{.lr = 0.01, .beta1 = 0.3}, 17),
          rule_for(AdamWOptions{.lr = 0.01}, 5)};
}

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

void run_build(const std::string& name, const Rule& rule, const Arrays& arrays, bool streaming) {
  std::visit(
      [&](const auto& r) {
        if (name == "avx512") update_avx512(r, arrays, 0, kElements, streaming);
        if (name == "avx2") update_avx2(r, arrays, 0, kElements, streaming);
        if (name == "scalar") update_scalar(r, arrays, 0, kElements, streaming);
      },
      rule);
}

std::vector<std::string> builds() {
  std::vector<std::string> names{"scalar"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) names.push_back("avx2");
  if (__builtin_cpu_supports("avx512f")) names.push_back("avx512");
  return names;
}

TEST(Update, EveryBuildFollowsTheFormulaBitForBit) {
  for (int shards : {1, 2, 3, 4, 5, 6, 7, 8, 11}) {
    const Problem problem(shards);
    for (const Rule& rule : rules())
      for (const std::string& name : builds())
        for (bool streaming : {false, true}) {
          Block w{}, s0{}, s1{};
          run_build(name, rule, problem.arrays(w, s0, s1), streaming);
          for (std::size_t i = 0; i < kElements; ++i) {
            const Expected e = std::visit([&](const auto& r) { return formula(r, problem, i); }, rule);
            ASSERT_TRUE(same_bits(w.values[i], e.w))
                << name << " rule " << rule.index() << " shards " << shards << " at " << i;
            const auto* sgd = std::get_if<SGDRule>(&rule);
            if (sgd == nullptr || sgd->momentum != 0) {
              ASSERT_TRUE(same_bits(s0.values[i], e.s0));
            }
            if (sgd == nullptr) {
              ASSERT_TRUE(same_bits(s1.values[i], e.s1));
            }
          }
        }
  }
}

TEST(Update, InPlaceGivesTheSameBits) {
  for (const Rule& rule : rules()) {
    Problem problem(2);
    Block w{}, s0{}, s1{};
    update(rule, problem.arrays(w, s0, s1), 0, kElements, kElements, Stores::plain);
    Problem place(2);
    Arrays arrays = place.arrays(place.weights, place.first, place.second);
    update(rule, arrays, 0, kElements, kElements);
    EXPECT_EQ(0, std::memcmp(&w, &place.weights, sizeof w));
  }
}

TEST(Update, TheGradientScaleMultipliesTheMean) {
  const Problem problem(3);
  Block w{}, s0{}, s1{};
  Arrays arrays = problem.arrays(w, s0, s1);
  arrays.gradient_scale = 0.37f;
  update(rule_for(SGDOptions{.lr = 1}, 1), arrays, 0, kElements, kElements);
  for (std::size_t i = 0; i < kElements; ++i)
    ASSERT_TRUE(same_bits(w.values[i], std::fma(problem.mean(i) * 0.37f, -1.0f, problem.weights.values[i])));
}

TEST(SquareSums, AddUpPerBlockWhoeverHasIt) {
  std::vector<float> gradient(3 * kBlock);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = float(i % 5);
  const float* pointer = gradient.data();
  const Arrays arrays{.gradients = &pointer, .shards = 1};
  double whole[3] = {}, parts[3] = {};
  square_sums(arrays, 0, 2 * kBlock + 160, whole);
  square_sums(arrays, 0, kBlock, parts);
  square_sums(arrays, kBlock, 2 * kBlock + 160, parts);
  for (std::size_t block = 0; block < 3; ++block) {
    double expected = 0;
    for (std::size_t i = block * kBlock; i < std::min((block + 1) * kBlock, 2 * kBlock + 160); ++i)
      expected += double(gradient[i]) * gradient[i];
    EXPECT_EQ(whole[block], expected);  // small integers: exact in any order
    EXPECT_EQ(parts[block], whole[block]);
  }
}

TEST(Update, TouchesOnlyItsRange) {
  const Problem problem(2);
  Block w{}, s0{}, s1{};
  update(rule_for(AdamOptions{}, 1), problem.arrays(w, s0, s1), 1024, 2048, kElements, Stores::streaming);
  for (std::size_t i = 0; i < kElements; ++i) EXPECT_EQ(w.values[i] != 0, i >= 1024 && i < 2048) << i;
}

TEST(Update, PaddingOfZerosStaysZero) {
  Problem problem(2);
  for (Block& block : problem.gradients) block = {};
  problem.weights = problem.first = problem.second = {};
  for (const Rule& rule : rules()) {
    Block w, s0, s1;
    update(rule, problem.arrays(w, s0, s1), 0, kElements, kElements);
    for (float x : w.values) ASSERT_EQ(x, 0.0f);
  }
}

}  // namespace
}  // namespace lockstep::optim
