#include "lockstep/flags/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::flags {
namespace {

using ::testing::ElementsAre;

// What a value says of a text that it does not take.
std::string refusal_of(const Value& value, const std::string& text) {
  try {
    value.read("--x", text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(IntegerValue, FromLeastToMost) {
  int place = 5;
  const Value value = integer(place, -2, 7);
  EXPECT_EQ(value.word, "N");
  EXPECT_EQ(value.initial, "5");
  for (const int number : {-2, 0, 7}) {
    value.read("--x", std::to_string(number));
    EXPECT_EQ(place, number);
    EXPECT_EQ(value.json(), std::to_string(number));
  }
  for (const char* outside : {"-3", "8", "99999999999999999999"})
    EXPECT_EQ(refusal_of(value, outside),
              "--x '" + std::string(outside) + "': out of range; wanted an integer from -2 to 7");
  for (const char* none : {"x", "1.5", "1 ", " 1", "+1", "0x1", "1e3"})
    EXPECT_EQ(refusal_of(value, none),
              "--x '" + std::string(none) + "': not an integer; wanted an integer from -2 to 7");
  EXPECT_EQ(refusal_of(value, ""), "--x needs a value, found none");
  EXPECT_EQ(place, 7) << "what is refused changes nothing";
}

TEST(IntegerValue, OfEachWidth) {
  std::int64_t wide = 0;
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  integer(wide, 0, kLargest).read("--x", std::to_string(kLargest));
  EXPECT_EQ(wide, kLargest);
  std::size_t size = 3;
  integer(size, 1, 9).read("--x", "9");
  EXPECT_EQ(size, 9u);
}

TEST(IntegerValue, MayBeMissing) {
  std::optional<std::int64_t> place;
  const Value value = integer(place, 0, 9);
  EXPECT_EQ(value.initial, "");
  EXPECT_EQ(value.json(), "null");
  value.read("--x", "0");
  EXPECT_EQ(place, 0);
  EXPECT_EQ(value.json(), "0");
}

TEST(RealValue, FiniteAndAsWanted) {
  double place = 0.001;
  const Value value = real(place, kNotNegative, "SECONDS");
  EXPECT_EQ(value.word, "SECONDS");
  EXPECT_EQ(value.initial, "0.001");
  EXPECT_EQ(value.json(), "0.001");
  value.read("--x", "1e-4");
  EXPECT_EQ(place, 1e-4);
  value.read("--x", "0");
  EXPECT_EQ(value.json(), "0.0") << "a real number stays one";
  for (const char* wrong : {"-1", "nan", "inf", "1e999"})
    EXPECT_EQ(refusal_of(value, wrong), "--x '" + std::string(wrong) + "': out of range; wanted a number of 0 or more");
  EXPECT_EQ(refusal_of(value, "1x"), "--x '1x': not a number; wanted a number of 0 or more");
  EXPECT_EQ(refusal_of(value, ""), "--x needs a value, found none");
  EXPECT_EQ(refusal_of(real(place, kPositive), "0"), "--x '0': out of range; wanted a number above 0");
}

TEST(TextValue, IsUtf8) {
  std::string place = "as it was";
  const Value value = text(place, "DIR");
  EXPECT_EQ(refusal_of(value, "runs/a\xff"), "--x 'runs/a\\xff': not UTF-8; wanted UTF-8");
  EXPECT_EQ(place, "as it was");
  value.read("--x", "caf\xc3\xa9");
  EXPECT_EQ(place, "caf\xc3\xa9");
}

TEST(TextValue, AsItIsButNotEmpty) {
  std::string place = "runs";
  const Value value = text(place, "DIR");
  EXPECT_EQ(value.word, "DIR");
  EXPECT_EQ(value.initial, "runs");
  value.read("--x", "a \"b\"\n");
  EXPECT_EQ(place, "a \"b\"\n");
  EXPECT_EQ(value.json(), R"("a \"b\"\n")");
  EXPECT_EQ(refusal_of(value, ""), "--x needs a value, found none");
}

TEST(NameValue, OneOfThemOrTheNearestIsNamed) {
  std::string place = "mlp";
  const Value value = one_of(place, {"mlp", "convnet"});
  EXPECT_EQ(value.choices, "mlp|convnet");
  EXPECT_EQ(value.initial, "mlp");
  value.read("--x", "convnet");
  EXPECT_EQ(place, "convnet");
  EXPECT_EQ(value.json(), "\"convnet\"");
  EXPECT_EQ(refusal_of(value, "convnot"),
            "--x: unknown value 'convnot': did you mean 'convnet'? (one of mlp, convnet)");
  EXPECT_EQ(refusal_of(value, ""), "--x needs a value, found none");
}

TEST(NameValue, SeveralWithCommas) {
  std::vector<std::string> place = {"mlp"};
  const Value value = several_of(place, {"mlp", "convnet"});
  value.read("--x", "convnet,mlp");
  EXPECT_THAT(place, ElementsAre("convnet", "mlp"));
  EXPECT_EQ(value.json(), R"(["convnet","mlp"])");
  EXPECT_EQ(refusal_of(value, "mlp,convnot"),
            "--x: unknown value 'convnot': did you mean 'convnet'? (one of mlp, convnet)");
  EXPECT_EQ(refusal_of(value, ""), "--x needs a value, found none");
  EXPECT_THAT(place, ElementsAre("convnet", "mlp"));
}

TEST(NameValue, StandsForAnotherType) {
  enum class Fruit { apple, pear };
  Fruit place = Fruit::apple;
  const Value value = choice<Fruit>(place, {{"apple", Fruit::apple}, {"pear", Fruit::pear}});
  EXPECT_EQ(value.choices, "apple|pear");
  EXPECT_EQ(value.initial, "apple");
  value.read("--x", "pear");
  EXPECT_EQ(place, Fruit::pear);
  EXPECT_EQ(value.json(), "\"pear\"");
  EXPECT_EQ(refusal_of(value, "peer"), "--x: unknown value 'peer': did you mean 'pear'? (one of apple, pear)");
}

TEST(Switch, OnAndOff) {
  bool place = false;
  const Value to_on = on(place), to_off = off(place);
  EXPECT_EQ(to_on.word, "");
  EXPECT_FALSE(to_on.negated);
  EXPECT_TRUE(to_off.negated);
  to_on.read("--x", "");
  EXPECT_TRUE(place);
  EXPECT_EQ(to_off.json(), "true") << "what holds, not what the flag does";
  to_off.read("--no-x", "");
  EXPECT_FALSE(place);
  EXPECT_EQ(to_on.json(), "false");
}

TEST(RealValue, MayBeMissing) {
  std::optional<double> place;
  const Value value = real(place, kNotNegative);
  EXPECT_EQ(value.initial, "");
  EXPECT_EQ(value.json(), "null");
  value.read("--x", "0.5");
  EXPECT_EQ(place, 0.5);
  EXPECT_EQ(value.json(), "0.5");
  EXPECT_EQ(refusal_of(value, "-1"), "--x '-1': out of range; wanted a number of 0 or more");
}

TEST(RisingValue, EachAboveTheOneBefore) {
  std::vector<std::int64_t> place;
  const Value value = rising(place, 1, 99);
  EXPECT_EQ(value.json(), "[]");
  value.read("--x", "60,80");
  EXPECT_THAT(place, ElementsAre(60, 80));
  EXPECT_EQ(value.json(), "[60,80]");
  EXPECT_EQ(refusal_of(value, "60,60"), "--x '60,60': each number must be above the one before");
  EXPECT_EQ(refusal_of(value, "60,x"), "--x 'x': not an integer; wanted an integer from 1 to 99");
  EXPECT_EQ(refusal_of(value, "0"), "--x '0': out of range; wanted an integer from 1 to 99");
  EXPECT_EQ(refusal_of(value, ""), "--x needs a value, found none");
  EXPECT_THAT(place, ElementsAre(60, 80)) << "what is refused changes nothing";
}

}  // namespace
}  // namespace lockstep::flags
