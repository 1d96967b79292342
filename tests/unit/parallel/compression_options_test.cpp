// The option by which gradients travel in 16 bits, where nothing travels, or other gradients do.

#include <gmock/gmock.h>

#include <memory>

#include "tests/unit/parallel/hook_job.h"

namespace lockstep::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

TEST(CompressionOptions, HaveNothingToDoOnOneNodeOrBesideAnOptimizerOfTorchs) {
  for (const Compression compression : {Compression::fp16, Compression::bf16}) {
    const DataParallelOptions compressed{.compression = compression};
    DistributedDataParallel plain(two_layers(), std::make_shared<comm::SingleGroup>(), compressed);
    EXPECT_THAT(plain.debug().ignored_options(),
                ElementsAre(StartsWith("compression: with an optimizer of torch::optim ")));
    DistributedDataParallel fused(two_layers(), std::make_shared<comm::SingleGroup>(), compressed);
    optim::SGD optimizer(fused, {.lr = 0.1});
    EXPECT_THAT(fused.debug().ignored_options(), ElementsAre(StartsWith("compression: there is one node, ")));
  }
}

}  // namespace
}  // namespace lockstep::parallel
