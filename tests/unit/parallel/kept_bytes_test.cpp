#include "lockstep/parallel/kept_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <vector>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "tests/support/usage_error.h"

namespace lockstep::parallel {
namespace {

using ::testing::HasSubstr;

TEST(KeptBytes, NeedANameOfTheirOwnAndMemory) {
  std::vector<std::byte> memory(3);
  KeptBytes kept;
  EXPECT_THAT(testing::usage_error([&] { kept.keep("", memory); }), HasSubstr("needs a name"));
  EXPECT_THAT(testing::usage_error([&] { kept.keep("best", {}); }), HasSubstr("keep('best') of no bytes"));
  kept.keep("best", memory);
  EXPECT_THAT(testing::usage_error([&] { kept.keep("best", memory); }), HasSubstr("keep('best') twice"));
  kept.keep("worst", memory);
  const std::vector<state::NamedBytes> specs = kept.specs();
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[1].name, "worst");
  EXPECT_EQ(specs[1].size, 3u);
}

TEST(KeptBytes, AreToldBeforeAnOptimizerAttaches) {
  torch::nn::Linear model(2, 2);
  DistributedDataParallel ddp(model, std::make_shared<comm::SingleGroup>());
  EXPECT_THAT(testing::usage_error([&] { ddp.state().recommit(); }), HasSubstr("needs an attached optimizer"));
  EXPECT_THAT(testing::usage_error([&] { ddp.state().hash(); }), HasSubstr("needs an attached optimizer"));
  optim::SGD optimizer(ddp);
  std::vector<std::byte> memory(3);
  EXPECT_THAT(testing::usage_error([&] { ddp.state().keep("best", memory); }),
              HasSubstr("keep('best') after an optimizer was attached"));
}

// Alone, where a step writes the buffer that it reads.
TEST(KeptBytes, AreAPartOfTheHash) {
  torch::nn::Linear model(2, 2);
  DistributedDataParallel ddp(model, std::make_shared<comm::SingleGroup>());
  std::vector<std::byte> first(70), second(1);
  ddp.state().keep("first", first);
  ddp.state().keep("second", second);
  optim::SGD optimizer(ddp);
  std::string hash = ddp.state().hash();
  for (std::byte* changed : {&first.front(), &first.back(), &second.front()}) {
    *changed = std::byte(7);
    EXPECT_EQ(ddp.state().hash(), hash) << "nobody has committed it";
    ddp.state().recommit();
    EXPECT_NE(ddp.state().hash(), hash);
    hash = ddp.state().hash();
  }
  EXPECT_EQ(ddp.steps(), 0u);
}

}  // namespace
}  // namespace lockstep::parallel
