// The agents' store as a state machine.

#include "lockstep/rendezvous/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace lockstep::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Texts = std::vector<std::string>;

StoreAsk ask_of(StoreCall call, Texts keys, Texts values = {}, std::int64_t number = 0, std::int64_t id = 1) {
  return {.id = id, .what = std::int64_t(call), .keys = std::move(keys), .values = std::move(values), .number = number};
}

class StoreTest : public ::testing::Test {
 protected:
  // The one answer to an ask of client 0.
  StoreAnswer ask(StoreCall call, Texts keys, Texts values = {}, std::int64_t number = 0) {
    const auto replies = store_.ask(0, ask_of(call, std::move(keys), std::move(values), number));
    EXPECT_THAT(replies, SizeIs(1));
    return replies.empty() ? StoreAnswer{.done = false, .why = "no answer"} : replies.front().answer;
  }
  std::string refused(StoreCall call, Texts keys, Texts values = {}, std::int64_t number = 0) {
    const StoreAnswer answer = ask(call, std::move(keys), std::move(values), number);
    EXPECT_FALSE(answer.done);
    return answer.why;
  }
  std::string value(const std::string& key) {
    const StoreAnswer answer = ask(StoreCall::get, {key});
    return answer.values.size() == 1 ? answer.values[0] : "no value";
  }
  // Asks that wait.
  void waits(std::uint64_t client, std::int64_t id, Texts keys, StoreCall call = StoreCall::get) {
    EXPECT_THAT(store_.ask(client, ask_of(call, std::move(keys), {}, 0, id)), IsEmpty());
  }

  Store store_;
};

TEST_F(StoreTest, WhatIsSetIsThere) {
  const std::string bytes("\0\xff", 2);
  EXPECT_TRUE(ask(StoreCall::set, {"a", bytes}, {"1", bytes}).done);
  EXPECT_EQ(value("a"), "1");
  EXPECT_EQ(value(bytes), bytes);
  ask(StoreCall::set, {"a"}, {""});
  EXPECT_EQ(value("a"), "");
  EXPECT_EQ(ask(StoreCall::num_keys, {}).number, 2);
  EXPECT_EQ(ask(StoreCall::check, {"a", "b", bytes}).number, 2);
  EXPECT_EQ(ask(StoreCall::delete_key, {"a"}).number, 1);
  EXPECT_EQ(ask(StoreCall::delete_key, {"a"}).number, 0);
  EXPECT_EQ(ask(StoreCall::num_keys, {}).number, 1);
}

TEST_F(StoreTest, SumsAreDigits) {
  EXPECT_EQ(ask(StoreCall::add, {"n"}, {}, 5).number, 5);
  EXPECT_EQ(ask(StoreCall::add, {"n"}, {}, -7).number, -2);
  EXPECT_EQ(value("n"), "-2");
  ask(StoreCall::set, {"n"}, {"40"});
  EXPECT_EQ(ask(StoreCall::add, {"n"}, {}, 2).number, 42);
  ask(StoreCall::set, {"text", "most"}, {"4x", std::to_string(std::numeric_limits<std::int64_t>::max())});
  EXPECT_THAT(refused(StoreCall::add, {"text"}, {}, 1), HasSubstr("is no whole number"));
  EXPECT_THAT(refused(StoreCall::add, {"most"}, {}, 1), HasSubstr("beyond 64 bits"));
  EXPECT_EQ(value("text"), "4x");
}

TEST_F(StoreTest, AppendsAndCompares) {
  EXPECT_EQ(ask(StoreCall::append, {"a"}, {"xy"}).number, 2);
  EXPECT_EQ(ask(StoreCall::append, {"a"}, {"z"}).number, 3);
  EXPECT_EQ(value("a"), "xyz");
  const auto compared = [&](const std::string& key, const std::string& expected, const std::string& wanted) {
    return ask(StoreCall::compare_set, {key}, {expected, wanted}).values;
  };
  EXPECT_THAT(compared("a", "no", "w"), ElementsAre("xyz"));
  EXPECT_THAT(compared("a", "xyz", "w"), ElementsAre("w"));
  EXPECT_THAT(compared("new", "no", "w"), ElementsAre("no")) << "as c10d's";
  EXPECT_EQ(ask(StoreCall::check, {"new"}).number, 0);
  EXPECT_THAT(compared("new", "", "w"), ElementsAre("w"));
  EXPECT_THAT(compared("new", "", "v"), ElementsAre("w"));
}

TEST_F(StoreTest, WhoWaitsIsAnsweredWhenTheLastKeyComes) {
  waits(1, 7, {"a", "b", "c"});
  waits(2, 7, {"b"}, StoreCall::wait);
  EXPECT_THAT(store_.ask(0, ask_of(StoreCall::set, {"a"}, {"1"})), SizeIs(1));
  EXPECT_THAT(store_.ask(0, ask_of(StoreCall::set, {"c"}, {"3"})), SizeIs(1));
  const auto replies = store_.ask(0, ask_of(StoreCall::add, {"b"}, {}, 2));
  ASSERT_THAT(replies, SizeIs(3));
  EXPECT_EQ(replies[1].client, 2u);
  EXPECT_THAT(replies[1].answer.values, IsEmpty());
  EXPECT_EQ(replies[2].client, 1u);
  EXPECT_EQ(replies[2].answer.id, 7);
  EXPECT_THAT(replies[2].answer.values, ElementsAre("1", "2", "3"));
  EXPECT_THAT(store_.ask(0, ask_of(StoreCall::set, {"b"}, {"4"})), SizeIs(1)) << "once";
}

TEST_F(StoreTest, AKeyThatWasDeletedMeanwhileIsWaitedForAgain) {
  ask(StoreCall::set, {"a"}, {"1"});
  waits(1, 1, {"a", "b"});
  ask(StoreCall::delete_key, {"a"});
  EXPECT_THAT(store_.ask(0, ask_of(StoreCall::set, {"b"}, {"2"})), SizeIs(1));
  const auto replies = store_.ask(0, ask_of(StoreCall::compare_set, {"a"}, {"", "3"}));
  ASSERT_THAT(replies, SizeIs(2));
  EXPECT_THAT(replies[1].answer.values, ElementsAre("3", "2"));
}

TEST_F(StoreTest, ACompareThatFailsWakesNobody) {
  waits(1, 1, {"a"});
  EXPECT_THAT(store_.ask(0, ask_of(StoreCall::compare_set, {"a"}, {"x", "y"})), SizeIs(1));
}

TEST_F(StoreTest, WhoIsForgottenOrGoneIsNotAnswered) {
  waits(1, 1, {"a"});
  waits(1, 2, {"a"});
  waits(2, 1, {"a"});
  store_.forget(1, 2);
  store_.forget(1, 2);
  store_.forget(3, 1);
  store_.leave(2);
  const auto replies = store_.ask(0, ask_of(StoreCall::append, {"a"}, {"x"}));
  ASSERT_THAT(replies, SizeIs(2));
  EXPECT_EQ(replies[1].client, 1u);
  EXPECT_EQ(replies[1].answer.id, 1);
}

TEST_F(StoreTest, AnAnswerHoldsWhatFits) {
  const std::string large(kLongestValue, 'x');
  for (const char* key : {"a", "b"}) ask(StoreCall::set, {key}, {large});
  ask(StoreCall::set, {"c"}, {"small"});
  EXPECT_THAT(ask(StoreCall::get, {"a", "c", "b"}).values, ElementsAre(large, "small"));
  EXPECT_THAT(ask(StoreCall::get, {"b"}).values, ElementsAre(large));
}

TEST_F(StoreTest, WhatMakesNoSenseIsRefused) {
  for (const StoreAsk& wrong :
       {ask_of(StoreCall(99), {"a"}), ask_of(StoreCall(-1), {}), ask_of(StoreCall::set, {"a"}),
        ask_of(StoreCall::set, {}), ask_of(StoreCall::get, {}), ask_of(StoreCall::get, {"a"}, {"b"}),
        ask_of(StoreCall::add, {"a", "b"}), ask_of(StoreCall::append, {"a"}), ask_of(StoreCall::num_keys, {"a"}),
        ask_of(StoreCall::compare_set, {"a"}, {"b"}), ask_of(StoreCall::delete_key, {})}) {
    const auto replies = store_.ask(0, wrong);
    ASSERT_THAT(replies, SizeIs(1));
    EXPECT_THAT(replies[0].answer.why, HasSubstr("is none of the store's"));
  }
  EXPECT_THAT(refused(StoreCall::set, {std::string(kLongestKey + 1, 'k')}, {""}), HasSubstr("a key of 1025 bytes"));
  EXPECT_THAT(refused(StoreCall::set, {"k"}, {std::string(kLongestValue + 1, 'v')}), HasSubstr("a value of 32769"));
  EXPECT_THAT(refused(StoreCall::check, Texts(kMostKeysAtOnce + 1, "k")), HasSubstr("1001 keys at once"));
  EXPECT_THAT(refused(StoreCall::set, {"a", "b"}, Texts(2, std::string(kLongestValue, 'v'))),
              HasSubstr("keys and values of 65538 bytes"));
  ask(StoreCall::set, {"k"}, {std::string(kLongestValue, 'v')});
  EXPECT_THAT(refused(StoreCall::append, {"k"}, {"v"}), HasSubstr("a value of 32769"));
  EXPECT_EQ(ask(StoreCall::num_keys, {}).number, 1);
}

TEST_F(StoreTest, TooManyWaitNot) {
  for (std::size_t i = 0; i < kMostWaiting; ++i) waits(1, std::int64_t(i), {"a"});
  const auto replies = store_.ask(1, ask_of(StoreCall::get, {"a"}, {}, 0, 1'000'000));
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_THAT(replies[0].answer.why, HasSubstr(" asks wait"));
  waits(2, 1, {"a"});
  EXPECT_THAT(store_.ask(2, ask_of(StoreCall::get, {"a"}))[0].answer.why, HasSubstr("another ask with the number 1"));
}

// Filled to its limit, it says so; what is taken out makes room, and so does who no longer waits.
TEST_F(StoreTest, ItIsFull) {
  const std::string large(kLongestValue, 'x');
  std::size_t count = 0;
  while (store_.ask(0, ask_of(StoreCall::set, {std::to_string(count)}, {large}))[0].answer.done) ++count;
  EXPECT_EQ(count, kMostStoreBytes / (kLongestValue + 5) + 1) << "keys are a little shorter at the beginning";
  EXPECT_THAT(refused(StoreCall::set, {"k"}, {large}), HasSubstr("the store is full: "));
  EXPECT_TRUE(ask(StoreCall::set, {"0"}, {large}).done) << "no more than before";
  ask(StoreCall::delete_key, {"0"});
  EXPECT_TRUE(ask(StoreCall::set, {"k"}, {large}).done);
}

TEST_F(StoreTest, AThousandThatWaitForAThousand) {
  Texts keys;
  for (int i = 0; i < 1'000; ++i) keys.push_back("rank/" + std::to_string(i));
  for (std::uint64_t client = 1; client <= 1'000; ++client) waits(client, 1, keys, StoreCall::wait);
  for (int i = 0; i < 999; ++i)
    EXPECT_THAT(store_.ask(0, ask_of(StoreCall::set, {keys[std::size_t(i)]}, {"x"})), SizeIs(1));
  EXPECT_THAT(store_.ask(0, ask_of(StoreCall::set, {keys.back()}, {"x"})), SizeIs(1'001));
}

}  // namespace
}  // namespace lockstep::rendezvous
