// The option by which gradients travel in 16 bits, where nothing travels, or other gradients do.

#include <gmock/gmock.h>

#include <memory>

#include "lockstep/parallel/ignored_options.h"
#include "tests/unit/parallel/hook_job.h"

namespace lockstep::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
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

// They do travel then, and in 16 bits by that option.
TEST(CompressionOptions, AreNamedToWhoAsksForAReduceDtypeBetweenNodes) {
  const DataParallelOptions options{.mixed_precision = {.reduce_dtype = at::kBFloat16}};
  const comm::Topology two{.world = 2, .nodes = 2};
  EXPECT_THAT(ignored_options(options, GradientPath::shared, comm::on_one_node(0, 2)),
              ElementsAre(EndsWith("no gradient is sent")));
  EXPECT_THAT(ignored_options(options, GradientPath::shared, two),
              ElementsAre(EndsWith("between nodes as `compression` says")));
}

}  // namespace
}  // namespace lockstep::parallel
