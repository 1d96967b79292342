// The kernel against the formulas of rules/ written out in the plainest way, bit for bit, in
// all builds that this machine can run.

#include "lockstep/optim/update.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>

#include "lockstep/optim/kernels.h"
#include "lockstep/optim/optimizer.h"
#include "tests/unit/optim/rule_formulas.h"

namespace lockstep::optim {
namespace {

constexpr std::size_t kElements = 4096;

struct alignas(64) Block {
  float values[kElements];
};

struct alignas(64) Halves {
  std::uint16_t values[kElements];
};

float widened(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t(x) << 16); }

// The nearest bfloat16, to even in the middle, in the plainest way: of the two neighbours.
std::uint16_t narrowed(float x) {
  if (std::isnan(x)) return 0x7fc0;
  const auto below = std::uint16_t(std::bit_cast<std::uint32_t>(x) >> 16);
  if (std::isinf(x)) return below;
  const auto above = std::uint16_t(below + 1);  // away from zero; past the largest number: infinity
  const double next = (above & 0x7fff) == 0x7f80 ? std::copysign(0x1p128, double(x)) : double(widened(above));
  const double down = std::abs(double(x) - double(widened(below)));
  const double up = std::abs(next - double(x));
  if (down == up) return below % 2 == 0 ? below : above;
  return down < up ? below : above;
}

struct Problem {
  explicit Problem(int shards, GradientType type = GradientType::float32)
      : gradient_type(type), gradients(std::size_t(shards)), halves(std::size_t(shards)) {
    std::mt19937 random(unsigned(7 + shards));
    std::normal_distribution<float> normal;
    for (Block& block : gradients)
      for (float& x : block.values) x = normal(random);
    for (float& x : weights.values) x = normal(random);
    for (float& x : first.values) x = normal(random) * 0.1f;
    for (float& x : second.values) x = std::abs(normal(random)) * 0.01f;
    for (float& x : third.values) x = std::abs(normal(random)) * 0.01f;
    for (std::size_t shard = 0; shard < gradients.size(); ++shard) {
      if (type == GradientType::float32) {
        pointers.push_back(gradients[shard].values);
        continue;
      }
      for (std::size_t i = 0; i < kElements; ++i) {
        float& gradient = gradients[shard].values[i];
        halves[shard].values[i] = narrowed(gradient);
        gradient = widened(halves[shard].values[i]);
      }
      pointers.push_back(halves[shard].values);
    }
  }
  Arrays arrays(Block& w, Block& s0, Block& s1, Block* s2 = nullptr) const {
    return {.gradients = pointers.data(),
            .gradient_type = gradient_type,
            .slots = int(pointers.size()),
            .mean = 1.0f / float(pointers.size()),
            .from_weights = weights.values,
            .from_state = {first.values, second.values, third.values},
            .to_weights = w.values,
            .to_state = {s0.values, s1.values, s2 ? s2->values : s0.values}};
  }
  float mean(std::size_t i) const { return sum(i) * (1.0f / float(pointers.size())); }
  float sum(std::size_t i) const {
    const std::function<float(int, int)> tree = [&](int lo, int hi) -> float {
      if (hi - lo == 1) return gradients[std::size_t(lo)].values[i];
      int half = 1;
      while (half * 2 < hi - lo) half *= 2;
      return tree(lo, lo + half) + tree(lo + half, hi);
    };
    return tree(0, int(pointers.size()));
  }

  GradientType gradient_type;
  std::vector<Block> gradients;  ///< their values in float32, whatever they are stored as
  std::vector<Halves> halves;
  std::vector<const void*> pointers;
  Block weights, first, second, third;
};

int arrays_of(const Rule& rule) {
  return std::visit([](const auto& r) { return r.arrays(); }, rule);
}

Weight updated(const Rule& rule, const Problem& p, std::size_t i) {
  const Weight before{p.weights.values[i], {p.first.values[i], p.second.values[i], p.third.values[i]}};
  return std::visit([&](const auto& r) { return formula(r, before, r.maximize ? -p.mean(i) : p.mean(i)); }, rule);
}

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

void run_build(const std::string& name, const Rule& rule, const Arrays& arrays, bool streaming) {
  const auto numbers = [](const auto& alternative) -> const void* { return &alternative; };
  Kernel* const kernel = name == "avx512" ? update_avx512 : name == "avx2" ? update_avx2 : update_scalar;
  kernel(rule.index(), std::visit(numbers, rule), arrays, 0, kElements, streaming);
}

std::vector<std::string> builds() {
  std::vector<std::string> names{"scalar"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) names.emplace_back("avx2");
  if (__builtin_cpu_supports("avx512f")) names.emplace_back("avx512");
  return names;
}

class Gradients : public testing::TestWithParam<GradientType> {};
INSTANTIATE_TEST_SUITE_P(Update, Gradients, testing::Values(GradientType::float32, GradientType::bfloat16));

TEST_P(Gradients, EveryBuildFollowsTheFormulaBitForBit) {
  for (int shards : {1, 2, 3, 4, 5, 6, 7, 8, 11}) {
    const Problem problem(shards, GetParam());
    for (const Rule& rule : rules())
      for (const std::string& name : builds())
        for (bool streaming : {false, true}) {
          Block w{}, state[3] = {};
          Halves copy{};
          Arrays arrays = problem.arrays(w, state[0], state[1], &state[2]);
          arrays.to_bf16 = copy.values;
          run_build(name, rule, arrays, streaming);
          for (std::size_t i = 0; i < kElements; ++i) {
            const Weight expected = updated(rule, problem, i);
            ASSERT_TRUE(same_bits(w.values[i], expected.w))
                << name << " rule " << rule.index() << " shards " << shards << " at " << i;
            ASSERT_EQ(copy.values[i], narrowed(w.values[i])) << name << " at " << i << ": " << w.values[i];
            for (int array = 0; array < 3; ++array)
              ASSERT_TRUE(same_bits(state[array].values[i], array < arrays_of(rule) ? expected.state[array] : 0))
                  << name << " rule " << rule.index() << " array " << array << " at " << i;
          }
        }
  }
}

// The rounding of the copies, where it is not plain: ties, the largest number, infinities, no number, subnormals.
TEST(Update, CopiesAreRoundedToTheNearestEven) {
  const std::uint32_t special[] = {0x00000000, 0x80000000, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001,
                                   0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00001, 0xffc00000,
                                   0x7f800001, 0x00000001, 0x00008000, 0x80018000};
  Problem problem(1);
  problem.gradients[0] = {};
  problem.pointers = {problem.gradients[0].values};
  for (std::size_t i = 0; i < kElements; ++i) problem.weights.values[i] = std::bit_cast<float>(special[i % 16]);
  for (const std::string& name : builds()) {
    Block w{}, s0{}, s1{};
    Halves copy{};
    Arrays arrays = problem.arrays(w, s0, s1);
    arrays.to_bf16 = copy.values;
    run_build(name, rule_for(SGDOptions{.lr = 1}, 1), arrays, false);
    for (std::size_t i = 0; i < kElements; ++i) ASSERT_EQ(copy.values[i], narrowed(w.values[i])) << name << " at " << i;
    EXPECT_EQ(copy.values[2], 0x3f80) << "a tie goes to the even neighbour";
    EXPECT_EQ(copy.values[3], 0x3f82);
    EXPECT_EQ(copy.values[6], 0x7f80) << "past the largest number lies infinity";
    EXPECT_EQ(copy.values[12], 0x7fc0);
  }
}

TEST(Update, InPlaceGivesTheSameBits) {
  for (const Rule& rule : rules()) {
    Problem problem(2);
    Block w{}, s0{}, s1{};
    update(rule, problem.arrays(w, s0, s1), 0, kElements, Stores::plain);
    Problem place(2);
    Arrays arrays = place.arrays(place.weights, place.first, place.second);
    update(rule, arrays, 0, kElements);
    EXPECT_EQ(0, std::memcmp(&w, &place.weights, sizeof w));
  }
}

TEST(Update, StreamingStoresGiveTheSameBits) {
  for (const Rule& rule : rules()) {
    const Problem problem(2);
    Block plain[3] = {}, streaming[3] = {};
    update(rule, problem.arrays(plain[0], plain[1], plain[2]), 0, kElements, Stores::plain);
    update(rule, problem.arrays(streaming[0], streaming[1], streaming[2]), 0, kElements, Stores::streaming);
    EXPECT_EQ(0, std::memcmp(plain, streaming, sizeof plain));
  }
}

// The slots of one node among several: the mean is over all.
TEST_P(Gradients, TheMeanIsWhatIsToldAndThenComesTheScale) {
  for (const int slots : {1, 3, 4, 7}) {
    const Problem problem(slots, GetParam());
    for (const std::string& name : builds()) {
      Block w{}, s0{}, s1{};
      Arrays arrays = problem.arrays(w, s0, s1);
      arrays.mean = 1.0f / 24;
      arrays.gradient_scale = 0.37f;
      run_build(name, rule_for(SGDOptions{.lr = 1}, 1), arrays, false);
      double sum = 0;
      power_sums(arrays, 0, kElements, 2, &sum);
      double lanes[16] = {};
      for (std::size_t i = 0; i < kElements; ++i) {
        const float mean = problem.sum(i) * (1.0f / 24);
        ASSERT_TRUE(same_bits(w.values[i], std::fma(mean * 0.37f, -1.0f, problem.weights.values[i])))
            << name << " at " << i;
        lanes[i % 16] += double(mean) * double(mean);
      }
      EXPECT_DOUBLE_EQ(sum, std::accumulate(std::begin(lanes), std::end(lanes), 0.0));
    }
  }
}

TEST(Update, TheGradientScaleMultipliesTheMean) {
  const Problem problem(3);
  Block w{}, s0{}, s1{};
  Arrays arrays = problem.arrays(w, s0, s1);
  arrays.gradient_scale = 0.37f;
  update(rule_for(SGDOptions{.lr = 1}, 1), arrays, 0, kElements);
  for (std::size_t i = 0; i < kElements; ++i)
    ASSERT_TRUE(same_bits(w.values[i], std::fma(problem.mean(i) * 0.37f, -1.0f, problem.weights.values[i])));
}

TEST(SquareSums, AddUpPerBlockWhoeverHasIt) {
  std::vector<float> gradient(3 * kBlock);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = float(i % 5);
  const void* pointer = gradient.data();
  const Arrays arrays{.gradients = &pointer};
  double whole[3] = {}, parts[3] = {};
  power_sums(arrays, 0, 2 * kBlock + 160, 2, whole);
  power_sums(arrays, 0, kBlock, 2, parts);
  power_sums(arrays, kBlock, 2 * kBlock + 160, 2, parts);
  for (std::size_t block = 0; block < 3; ++block) {
    double expected = 0;
    for (std::size_t i = block * kBlock; i < std::min((block + 1) * kBlock, 2 * kBlock + 160); ++i)
      expected += double(gradient[i]) * gradient[i];
    EXPECT_EQ(whole[block], expected);  // small integers: exact in any order
    EXPECT_EQ(parts[block], whole[block]);
  }
}

TEST(SquareSums, OfBfloat16AreThoseOfTheSameNumbersInFloat32) {
  const Problem half(3, GradientType::bfloat16);
  Problem whole(3);
  whole.gradients = half.gradients;
  for (std::size_t shard = 0; shard < 3; ++shard) whole.pointers[shard] = whole.gradients[shard].values;
  Block w{}, s0{}, s1{};
  double of_half = 0, of_whole = 0;
  power_sums(half.arrays(w, s0, s1), 0, kElements, 2, &of_half);
  power_sums(whole.arrays(w, s0, s1), 0, kElements, 2, &of_whole);
  EXPECT_EQ(of_half, of_whole);
  EXPECT_GT(of_half, 0);
}

TEST(PowerSums, MakeEveryNorm) {
  const Problem problem(3);
  Block w{}, s0{}, s1{};
  for (const double p : {0.5, 1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    double sum = 0;
    power_sums(problem.arrays(w, s0, s1), 0, kElements, p, &sum);
    double expected = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const double g = std::abs(double(problem.mean(i)));
      expected = std::isinf(p) ? std::max(expected, g) : expected + std::pow(g, p);
    }
    EXPECT_NEAR(norm_of(&sum, 1, p), std::isinf(p) ? expected : std::pow(expected, 1 / p), 1e-10 * expected) << p;
  }
}

TEST(PowerSums, OfWhatIsNoNumberAreNone) {
  Problem problem(1);
  problem.gradients[0].values[77] = std::numeric_limits<float>::quiet_NaN();
  Block w{}, s0{}, s1{};
  for (const double p : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    double sums[2] = {};
    power_sums(problem.arrays(w, s0, s1), 0, kElements, p, &sums[0]);
    EXPECT_TRUE(std::isnan(norm_of(sums, 2, p))) << p;
    std::swap(sums[0], sums[1]);
    EXPECT_TRUE(std::isnan(norm_of(sums, 2, p))) << p;
  }
}

TEST(NormOf, NothingIsZero) { EXPECT_EQ(norm_of(nullptr, 0, 2), 0); }

TEST(NormOf, AddsBlocksAlongTheTree) {
  const double sums[] = {1, 0x1p-53, 0x1p-53, 0};
  EXPECT_EQ(norm_of(sums, 3, 1), 1) << "(1 + e) + e";
  EXPECT_EQ(norm_of(sums + 1, 2, 1), 0x1p-52);
  EXPECT_EQ(norm_of(sums, 4, std::numeric_limits<double>::infinity()), 1);
}

TEST(Update, CutsGradientsBehindTheirScale) {
  Problem problem(2);
  for (Block& block : problem.gradients) block.values[5] = std::numeric_limits<float>::quiet_NaN();
  for (const std::string& name : builds()) {
    Block w{}, s0{}, s1{};
    Arrays arrays = problem.arrays(w, s0, s1);
    arrays.gradient_scale = 0.7f;
    arrays.max_value = 0.25f;
    run_build(name, rule_for(SGDOptions{.lr = 1}, 1), arrays, false);
    for (std::size_t i = 0; i < kElements; ++i) {
      if (i == 5) continue;
      const float cut = std::clamp(problem.mean(i) * 0.7f, -0.25f, 0.25f);
      ASSERT_TRUE(same_bits(w.values[i], std::fma(cut, -1.0f, problem.weights.values[i]))) << name << " at " << i;
    }
    EXPECT_TRUE(std::isnan(w.values[5])) << name;
  }
}

TEST(ClipCoefficient, IsTorchsAlsoWhereTheNormIsNotFinite) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(clip_coefficient(1, 0), 1.0f);
  EXPECT_EQ(clip_coefficient(1, 0.5), 1.0f);
  EXPECT_EQ(clip_coefficient(1, 4), float(1 / (4 + 1e-6)));
  EXPECT_EQ(clip_coefficient(inf, 4), 1.0f);
  EXPECT_EQ(clip_coefficient(1, inf), 0.0f);
  EXPECT_TRUE(std::isnan(clip_coefficient(1, std::nan(""))));
  EXPECT_TRUE(std::isnan(clip_coefficient(inf, inf)));
}

TEST(FirstNonfinite, LooksAtTheMeanInItsRange) {
  Problem problem(2);
  Block w{}, s0{}, s1{};
  const auto find = [&](std::size_t begin, std::size_t end) {
    return first_nonfinite(problem.arrays(w, s0, s1), begin, end);
  };
  EXPECT_EQ(find(0, kElements), kElements);
  problem.gradients[1].values[77] = std::numeric_limits<float>::quiet_NaN();
  problem.gradients[0].values[500] = std::numeric_limits<float>::infinity();
  for (Block& block : problem.gradients) block.values[900] = 3e38f;  // finite, their sum is not
  EXPECT_EQ(find(0, kElements), 77u);
  EXPECT_EQ(find(3, 77), 77u);
  EXPECT_EQ(find(78, kElements), 500u);
  EXPECT_EQ(find(501, kElements), 900u);
  EXPECT_EQ(find(901, kElements), kElements);
  EXPECT_EQ(find(5, 5), 5u);
}

TEST(Update, AveragesTheNewWeights) {
  const Problem problem(2);
  for (const std::string& name : builds())
    for (const Averaging averaging : {Averaging::keep, Averaging::copy, Averaging::mean}) {
      Block w{}, average{};
      Arrays arrays = problem.arrays(w, w, w);
      arrays.from_average = problem.third.values;
      arrays.to_average = average.values;
      arrays.averaging = averaging;
      arrays.decay = 0.9;
      run_build(name, rule_for(SGDOptions{.lr = 0.1}, 1), arrays, false);
      for (std::size_t i = 0; i < kElements; ++i) {
        const float before = problem.third.values[i];
        const float expected = averaging == Averaging::keep   ? before
                               : averaging == Averaging::copy ? w.values[i]
                                                              : 0.9f * before + float(1 - 0.9) * w.values[i];
        ASSERT_TRUE(same_bits(average.values[i], expected)) << name << ' ' << i;
      }
    }
}

TEST(Update, TouchesOnlyItsRange) {
  const Problem problem(2);
  Block w{}, s0{}, s1{};
  update(rule_for(AdamOptions{}, 1), problem.arrays(w, s0, s1), 1024, 2048, Stores::streaming);
  for (std::size_t i = 0; i < kElements; ++i) EXPECT_EQ(w.values[i] != 0, i >= 1024 && i < 2048) << i;
}

TEST(Update, PaddingOfZerosStaysZero) {
  Problem problem(2);
  for (Block& block : problem.gradients) block = {};
  problem.weights = problem.first = problem.second = problem.third = {};
  for (const Rule& rule : rules()) {
    Block w, s0, s1;
    update(rule, problem.arrays(w, s0, s1), 0, kElements);
    for (float x : w.values) ASSERT_EQ(x, 0.0f);
  }
}

}  // namespace
}  // namespace lockstep::optim
