#include "lockstep/checkpoint/files/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/usage_error.h"
#include "tests/unit/checkpoint/files/a_state_dict.h"

namespace lockstep::checkpoint {
namespace {

using namespace testing::pt;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::ScratchFolder;
using testing::usage_error;

std::vector<std::string> names_in(const std::string& value) {
  const ScratchFolder folder;
  std::vector<std::string> names;
  const WeightsFile file(folder.write("f", small_archive(value)));
  for (const auto& [name, tensor] : file.tensors()) names.push_back(name);
  return names;
}

std::string weights_refusal(const std::string& value) {
  return usage_error([&] { names_in(value); });
}

const std::string kTensor = small_entries()[0].second;

TEST(StateDict, IsTheDictionaryOrTheEntryOfACheckpoint) {
  const std::string weights = ordered({{"w", kTensor}}), other = ordered({{"other", kTensor}});
  EXPECT_THAT(names_in(weights), ElementsAre("w"));
  for (const char* entry : {"model", "state_dict", "model_state_dict", "model_ema"})
    EXPECT_THAT(names_in(dictionary({{"best_acc1", kTensor}, {"epoch", integer(3)}, {entry, weights}})),
                ElementsAre("w"));
  EXPECT_THAT(names_in(dictionary({{"model_ema", other}, {"model", weights}})), ElementsAre("w"));
  EXPECT_THAT(names_in(dictionary({{"model", dictionary({{"depth", integer(3)}})}, {"state_dict", weights}})),
              ElementsAre("w"));
  EXPECT_THAT(names_in(dictionary({{"model", kTensor}})), ElementsAre("model"));
}

TEST(StateDict, LosesThePrefixThatAllNamesHave) {
  EXPECT_THAT(names_in(ordered({{"module.a", kTensor}, {"module.b", kTensor}})), ElementsAre("a", "b"));
  EXPECT_THAT(names_in(ordered({{"module.module.a", kTensor}})), ElementsAre("a"));
  EXPECT_THAT(names_in(ordered({{"module.a", kTensor}, {"b", kTensor}})), ElementsAre("b", "module.a"));
  EXPECT_THAT(names_in(ordered({{"n_averaged", small_entries()[3].second}, {"module.a", kTensor}})), ElementsAre("a"));
  EXPECT_THAT(names_in(ordered({{"n_averaged", kTensor}, {"a", kTensor}})), ElementsAre("a", "n_averaged"));
}

TEST(StateDict, AsMuchOfThePrefixAsAllNamesHaveIsLost) {
  EXPECT_THAT(names_in(ordered({{"module.b", kTensor}, {"module.module.a", kTensor}})), ElementsAre("b", "module.a"));
}

// A megabyte or two that would take minutes, were each name copied for each of its prefixes or each time it is given.
TEST(StateDict, LongNamesTakeNoLongerThanTheirBytes) {
  const auto start = std::chrono::steady_clock::now();
  std::string prefixes;
  for (int i = 0; i < 300'000; ++i) prefixes += "module.";
  EXPECT_THAT(names_in(ordered({{prefixes + "a", kTensor}})), ElementsAre("a"));
  std::string items = text(std::string(1'000'000, 'k')) + std::string("q\x07", 2) + kTensor;
  for (int i = 0; i < 300'000; ++i) items += std::string("h\x07N", 3);
  items += text("w") + kTensor;
  EXPECT_THAT(names_in("}(" + items + "u"), ElementsAre("w"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(StateDict, OfPython2IsMadeOfPairs) {
  const std::string pairs = "](" + ("](" + text("w") + kTensor + "e") + "e";
  EXPECT_THAT(names_in(global("collections", "OrderedDict") + tuple(pairs) + "R"), ElementsAre("w"));
}

TEST(StateDict, WhatIsNoTensorIsListed) {
  const ScratchFolder folder;
  const std::string sparse = global("torch._utils", "_rebuild_sparse_tensor") + ")R";
  const WeightsFile file(folder.write(
      "f", small_archive(dictionary({{"model", ordered({{"w", kTensor}, {"s", sparse}, {"_extra_state", "N"}})},
                                     {"optimizer", dictionary({{"state", "}"}})},
                                     {"epoch", integer(12)},
                                     {"args", name_space()}}))));
  EXPECT_EQ(file.tensors().size(), 1u);
  EXPECT_THAT(file.others(),
              ElementsAre(Pair("_extra_state", "None"), Pair("args", "argparse.Namespace"), Pair("epoch", "12"),
                          Pair("optimizer", "a dictionary"), Pair("s", "torch._utils._rebuild_sparse_tensor")));
}

// torch.save({'model': model, ...}), and a model alone: the class is named, and never made.
TEST(StateDict, AnObjectInThePlaceOfWeightsIsNamed) {
  const std::string net = global("demo.nets", "Net") + ")\x81";
  EXPECT_THAT(weights_refusal(dictionary({{"epoch", integer(3)}, {"model", net}})),
              HasSubstr("'model_ema'; 'model' is demo.nets.Net: objects are not made, save the state_dict()"));
  EXPECT_THAT(weights_refusal(dictionary({{"a", net}, {"b", net}, {"c", net}, {"d", net}, {"e", net}})),
              HasSubstr("'c' is demo.nets.Net and 2 more are objects"));
  EXPECT_THAT(weights_refusal(dictionary({{"epoch", integer(3)}})), ::testing::Not(HasSubstr("objects")));
  EXPECT_THAT(weights_refusal(net), HasSubstr("demo.nets.Net was saved; save the state_dict() of a model"));
}

TEST(StateDict, OfEqualNamesTheLastCounts) {
  const ScratchFolder folder;
  const WeightsFile file(folder.write("f", small_archive(dictionary({{"w", "N"}, {"w", kTensor}}))));
  EXPECT_EQ(file.tensors().size(), 1u);
}

TEST(StateDict, DamageOfWhatIsNotWantedIsNoneOfTheWeights) {
  const std::string torn = tensor(storage("FloatStorage", "77", 6), {6}, {1});
  EXPECT_THAT(names_in(dictionary({{"model", ordered({{"w", kTensor}})}, {"optimizer", dictionary({{"m", torn}})}})),
              ElementsAre("w"));
}

}  // namespace
}  // namespace lockstep::checkpoint
