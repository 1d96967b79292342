// The options by which nodes share out the optimizer's state, where there are no nodes to do so.

#include <gmock/gmock.h>

#include <memory>

#include "tests/support/what_of.h"
#include "tests/unit/parallel/hook_job.h"

namespace lockstep::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Zero1Options, HaveNothingToDoOnOneNodeOrBesideAnOptimizerOfTorchs) {
  const DataParallelOptions shared_out{.zero1 = true};
  DistributedDataParallel plain(two_layers(), std::make_shared<comm::SingleGroup>(), shared_out);
  EXPECT_THAT(plain.debug().ignored_options(), ElementsAre(StartsWith("zero1: an optimizer of torch::optim is")));
  DistributedDataParallel fused(two_layers(), std::make_shared<comm::SingleGroup>(), shared_out);
  optim::SGD optimizer(fused, {.lr = 0.1});
  EXPECT_THAT(fused.debug().ignored_options(), ElementsAre(StartsWith("zero1: there is one node, ")));
}

// A job of one node would end when the second one comes.
TEST(Zero1Options, AreRefusedOnOneNodeBesideWhatNeedsAllOfTheState) {
  const auto group = std::make_shared<comm::SingleGroup>();
  DistributedDataParallel one(two_layers(), group, {.name = "one", .zero1 = true}),
      two(two_layers(), group, {.name = "two"});
  EXPECT_THAT(support::what_of([&] { optim::LAMB optimizer(one, {.lr = 0.1}); }),
              HasSubstr("takes norms over each parameter"));
  optim::SGD first(one, {.lr = 0.1}), second(two, {.lr = 0.1});
  EXPECT_THAT(support::what_of([&] { commit_together(one, two); }),
              HasSubstr("commit_together() of a model with zero1"));
}

TEST(Zero1Options, ACopyIsOfShares) {
  EXPECT_EQ(support::what_of([] {
              DistributedDataParallel(two_layers(), std::make_shared<comm::SingleGroup>(), {.zero1_copy = true});
            }),
            "data parallel: zero1_copy without zero1, of whose shares it makes copies");
}

}  // namespace
}  // namespace lockstep::parallel
