#include "lockstep/comm/reduce/reduce.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "lockstep/base/limits.h"
#include "lockstep/base/tree.h"

namespace lockstep::comm {
namespace {

using Bytes = std::vector<std::byte>;

std::size_t width_of(Element element) {
  constexpr std::size_t widths[] = {4, 8, 2, 2, 1, 1, 4, 8};
  return widths[int(element)];
}

constexpr Element kElements[] = {Element::float32, Element::float64, Element::bfloat16, Element::float16,
                                 Element::int8,    Element::uint8,   Element::int32,    Element::int64};
constexpr Combine kCombines[] = {Combine::sum, Combine::product, Combine::min, Combine::max};

// Any bits but infinities and NaNs: the topmost bit of the exponent is clear.
Bytes random_bytes(Element element, std::size_t elements, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(elements * width_of(element));
  for (std::byte& byte : bytes) byte = std::byte(random());
  const bool floating = element <= Element::float16;
  for (std::size_t at = width_of(element) - 1; floating && at < bytes.size(); at += width_of(element))
    bytes[at] &= std::byte(0xbf);
  return bytes;
}

struct Case {
  std::vector<Bytes> inputs;
  std::vector<Bytes> outputs;

  void reduce(const char* build, const Reduction& reduction, std::size_t begin, std::size_t end) {
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (const Bytes& input : inputs) from.push_back(input.data());
    for (Bytes& output : outputs) to.push_back(output.data());
    tree_reduce_by(build, reduction, {from.data(), int(from.size()), to.data(), int(to.size())}, begin, end);
  }
};

Case make_case(Element element, int count, int copies, std::size_t elements) {
  Case made;
  for (int i = 0; i < count; ++i) made.inputs.push_back(random_bytes(element, elements, unsigned(i + 1)));
  made.outputs.assign(std::size_t(copies), Bytes(elements * width_of(element), std::byte(0x55)));
  return made;
}

TEST(Reduce, EveryInstructionSetGivesTheSameBits) {
  const std::vector<const char*> builds = reduce_builds();
  EXPECT_STREQ(builds.back(), "scalar");
  for (Element element : kElements)
    for (Combine combine : kCombines)
      for (int count : {1, 2, 3, 4, 5, 8, 13})
        for (std::size_t elements : {1, 100, 1003}) {
          std::vector<Bytes> results;
          for (const char* build : builds)
            for (int copies : {1, count}) {
              Case made = make_case(element, count, copies, elements);
              made.reduce(build, {element, combine, 0.3}, 0, elements);
              for (const Bytes& output : made.outputs) results.push_back(output);
            }
          for (const Bytes& result : results)
            ASSERT_EQ(result, results.front()) << int(element) << " " << int(combine) << " x " << count;
        }
}

TEST(Reduce, AsManyInputsAsThereCanBeRanks) {
  constexpr int count = base::kMaxLocalRanks;
  static_assert(count >= 512);
  Case made = make_case(Element::int32, count, 1, 19);  // a whole vector, and a rest
  for (const char* build : reduce_builds()) {
    made.reduce(build, {Element::int32, Combine::sum}, 0, 19);
    for (std::size_t at = 0; at < 19; ++at) {
      std::uint32_t sum = 0;
      for (const Bytes& input : made.inputs) {
        std::uint32_t value = 0;
        std::memcpy(&value, input.data() + at * 4, 4);
        sum += value;
      }
      std::uint32_t got = 0;
      std::memcpy(&got, made.outputs[0].data() + at * 4, 4);
      ASSERT_EQ(got, sum) << build << " " << at;
    }
  }
}

TEST(Reduce, SumsAlongTheTree) {
  for (int count = 1; count <= 17; ++count) {
    Case made = make_case(Element::float32, count, 1, 50);
    const auto value = [&](int input, std::size_t at) {
      float number = 0;
      std::memcpy(&number, made.inputs[std::size_t(input)].data() + 4 * at, 4);
      return number;
    };
    for (const char* build : reduce_builds()) {
      made.reduce(build, {Element::float32, Combine::sum, 0.5}, 0, 50);
      for (std::size_t at = 0; at < 50; ++at) {
        float result = 0;
        std::memcpy(&result, made.outputs[0].data() + 4 * at, 4);
        ASSERT_EQ(result, base::tree_sum(0, count, [&](int input) { return value(input, at); }) * 0.5f);
      }
    }
  }
}

// So a sum that goes by way of float32 has the bits of one that does not.
TEST(Reduce, SixteenBitsAreWidenedAndRoundedAsInASum) {
  for (const char* build : reduce_builds())
    for (const Element element : {Element::bfloat16, Element::float16})
      for (const std::size_t elements : {0, 1, 16, 1003}) {
        Case made = make_case(element, 2, 1, elements);
        made.reduce(build, {element, Combine::sum, 0.3}, 0, elements);
        std::vector<float> left(elements + 1, 7), right(elements + 1, 7);
        widen_by(build, element, made.inputs[0].data(), elements, left.data());
        widen_by(build, element, made.inputs[1].data(), elements, right.data());
        EXPECT_EQ(left[elements], 7) << "beyond the end";
        for (std::size_t at = 0; at < elements; ++at) left[at] = (left[at] + right[at]) * 0.3f;
        Bytes rounded(elements * 2 + 1, std::byte(0x55));
        narrow_by(build, element, left.data(), elements, rounded.data());
        EXPECT_EQ(rounded.back(), std::byte(0x55)) << "beyond the end";
        rounded.pop_back();
        ASSERT_EQ(rounded, made.outputs[0]) << build << " " << int(element) << " x " << elements;
      }
}

TEST(Reduce, WritesItsRangeOnly) {
  for (const char* build : reduce_builds())
    for (Element element : kElements) {
      Case made = make_case(element, 2, 2, 300);
      made.reduce(build, {element, Combine::sum}, 64, 201);
      const std::size_t width = width_of(element);
      for (const Bytes& output : made.outputs)
        for (std::size_t at = 0; at < output.size(); ++at) {
          if (at >= 64 * width && at < 201 * width) continue;
          ASSERT_EQ(output[at], std::byte(0x55));
        }
    }
}

TEST(Reduce, NaNsSurviveMinAndMaxFromEitherSide) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* build : reduce_builds())
    for (Combine combine : {Combine::min, Combine::max})
      for (const auto& [left, right] : {std::pair{nan, 1.0f}, std::pair{1.0f, nan}}) {
        const std::byte* from[] = {reinterpret_cast<const std::byte*>(&left),
                                   reinterpret_cast<const std::byte*>(&right)};
        float result = 0;
        std::byte* to[] = {reinterpret_cast<std::byte*>(&result)};
        tree_reduce_by(build, {Element::float32, combine}, {from, 2, to, 1}, 0, 1);
        EXPECT_TRUE(result != result);
      }
}

}  // namespace
}  // namespace lockstep::comm
