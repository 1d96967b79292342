#include "lockstep/amp/autocast.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/what_of.h"

namespace lockstep::amp {
namespace {

using support::what_of;
using ::testing::HasSubstr;

at::ScalarType type_of_product() { return torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type(); }

TEST(Autocast, HasPythonsArguments) {
  EXPECT_EQ(type_of_product(), at::kFloat);
  {
    const Autocast outer(AutocastOptions{});
    EXPECT_EQ(type_of_product(), at::kBFloat16);
    {
      const Autocast half(AutocastOptions{.dtype = at::kHalf, .cache_enabled = false});
      EXPECT_EQ(type_of_product(), at::kHalf);
      EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
      const Autocast inner({.cache_enabled = true});
      EXPECT_EQ(type_of_product(), at::kHalf) << "as around it";
      EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
    }
    {
      const Autocast island(AutocastOptions{.enabled = false});
      EXPECT_EQ(type_of_product(), at::kFloat);
    }
    EXPECT_EQ(type_of_product(), at::kBFloat16);
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  }
  EXPECT_EQ(type_of_product(), at::kFloat);
}

TEST(Autocast, RefusesWhatThereIsNot) {
  const auto refused = [](const AutocastOptions& options) { return what_of([&] { const Autocast scope(options); }); };
  EXPECT_THAT(refused({.dtype = at::kFloat}), HasSubstr("to Float, must be BFloat16 or Half"));
  EXPECT_THAT(refused({.device = at::kMeta}), HasSubstr("no autocast for device meta"));
  EXPECT_EQ(type_of_product(), at::kFloat);
}

}  // namespace
}  // namespace lockstep::amp
