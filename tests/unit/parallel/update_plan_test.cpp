#include "lockstep/parallel/update_plan.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::parallel {
namespace {

using optim::RuleKey;

constexpr std::size_t kBlock = state::Layout::kBlock;

state::TensorSpec spec(const char* name, std::int64_t elements, int group = 0) {
  return {.name = name, .sizes = {elements}, .strides = {1}, .group = group};
}

// The rule says which key it was made for.
optim::Rule rule_of(const RuleKey& key) {
  return optim::SGDRule{.negative_lr = -float(key.group), .momentum = float(key.step)};
}

// "[begin, end) of the part at P: parameter N, group G, update U" or "kept".
std::vector<std::string> texts(const std::vector<Piece>& pieces) {
  std::vector<std::string> all;
  for (const Piece& piece : pieces) {
    std::string text = std::to_string(piece.part->range.begin) + "+[" + std::to_string(piece.range.begin) + "," +
                       std::to_string(piece.range.end) + ") " + std::to_string(piece.parameter);
    if (const auto* sgd = std::get_if<optim::SGDRule>(&piece.rule))
      text += " group " + std::to_string(int(-sgd->negative_lr)) + " update " + std::to_string(int(sgd->momentum));
    else
      text += " kept with " + std::to_string(std::get<optim::KeepRule>(piece.rule).state_arrays);
    all.push_back(text);
  }
  return all;
}

const state::Layout& example() {
  static const state::Layout layout({spec("a", 40), spec("b", 0), spec("c", 20'000), spec("d", 7, 1), spec("e", 50)},
                                    {}, {.optimizer_arrays = 2});
  return layout;  // a at 0, c at 48, e at 20'048; group 1 from block 2 on: d
}

std::vector<std::string> pieces(state::Slice mine, std::vector<std::uint64_t> counts, std::vector<bool> used) {
  UpdatePlan plan(example(), mine);
  plan.choose(rule_of, counts.data());
  std::vector<Piece> found(7);
  plan.fill(found, used);
  return texts(found);
}

const state::Slice kAll{0, example().elements()};
const std::vector<bool> kUsed(5, true);
using Texts = std::vector<std::string>;

TEST(UpdatePlan, ParametersOfOneKindAreOnePiece) {
  EXPECT_EQ(pieces(kAll, {0, 0, 0, 0, 0}, kUsed),
            (Texts{"0+[0,32768) 0 group 0 update 1", "32768+[0,16) 3 group 1 update 1"}));
}

TEST(UpdatePlan, AnotherCountOfUpdatesIsAnotherPiece) {
  EXPECT_EQ(
      pieces(kAll, {7, 0, 4, 9, 4}, kUsed),
      (Texts{"0+[0,48) 0 group 0 update 8", "0+[48,32768) 2 group 0 update 5", "32768+[0,16) 3 group 1 update 10"}));
}

TEST(UpdatePlan, UnusedParametersAreKept) {
  EXPECT_EQ(pieces(kAll, {1, 1, 1, 1, 1}, {true, false, false, false, true}),
            (Texts{"0+[0,48) 0 group 0 update 2", "0+[48,20048) 2 kept with 2", "0+[20048,32768) 4 group 0 update 2",
                   "32768+[0,16) 3 kept with 2"}));
}

TEST(UpdatePlan, ASliceHasItsShareOfAParameter) {
  EXPECT_EQ(pieces({kBlock, kAll.end}, {1, 1, 2, 1, 1}, kUsed),
            (Texts{"0+[16384,20048) 2 group 0 update 3", "0+[20048,32768) 4 group 0 update 2",
                   "32768+[0,16) 3 group 1 update 2"}));
  EXPECT_EQ(pieces({kBlock, kBlock}, {1, 1, 2, 1, 1}, kUsed), Texts{});
}

TEST(UpdatePlan, ModelsWithoutElementsHaveNoPieces) {
  const state::Layout empty({}, {}, {}), hollow({spec("a", 0)}, {}, {});
  for (const state::Layout* layout : {&empty, &hollow}) {
    UpdatePlan plan(*layout, {0, layout->elements()});
    const std::uint64_t count = 0;
    plan.choose(rule_of, &count);
    std::vector<Piece> found(1);
    plan.fill(found, {true});
    EXPECT_TRUE(found.empty());
  }
}

TEST(UpdatePlan, EachRuleIsAskedForOnce) {
  UpdatePlan plan(example(), kAll);
  const std::vector<std::uint64_t> counts{0, 0, 3, 0, 0};
  int asked = 0;
  plan.choose([&](const RuleKey& key) { return ++asked, rule_of(key); }, counts.data());
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace lockstep::parallel
