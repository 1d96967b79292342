// NCCL's library as it is found, and the group over a stand-in of it (tests/support/device/nccl_stand_in.cpp).

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/types.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "lockstep/comm/collectives.h"
#include "lockstep/comm/nccl/nccl_group.h"
#include "lockstep/comm/world.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "tests/support/device/comm_cases.h"
#include "tests/support/device/norm_cases.h"
#include "tests/support/device/sim_device.h"
#include "tests/support/ranks.h"
#include "tests/support/what_of.h"

namespace lockstep::comm::nccl {
namespace {

using support::RankKind;
using support::what_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
namespace sim = lockstep::testing::sim;

constexpr const char* kStandIn = NCCL_STAND_IN;
constexpr int kDevices = 3;

// For a scope.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(NcclLibrary, IsLookedForBesideLibtorchAndByTheLoader) {
  EXPECT_THAT(candidates(nullptr, "/site/torch/lib"),
              ElementsAre("/site/nvidia/nccl/lib/libnccl.so.2", "libnccl.so.2"));
  EXPECT_THAT(candidates("", ""), ElementsAre("libnccl.so.2"));
  EXPECT_THAT(candidates("/mine.so", "/site/torch/lib"), ElementsAre("/mine.so"));
  EXPECT_EQ(version_text(21805), "2.18.5");
}

// The real one, which needs no GPU to tell its version.
TEST(NcclLibrary, OfLibtorchIsWhole) {
  const std::string file = REAL_NCCL;
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  const Library library = load({"/nowhere/libnccl.so.2", file});
  EXPECT_EQ(library.path, file);
  EXPECT_GE(library.version, kLeastVersion);
  EXPECT_STREQ(library.table.get_error_string(Result::success), "no error");
  EXPECT_THAT(library.table.get_error_string(Result::remote_error), HasSubstr("remote process"));
}

TEST(NcclLibrary, MissingTooOldAndOtherOnesAreRefusedInALine) {
  EXPECT_THAT(what_of([] { (void)load({"/nowhere/libnccl.so.2"}); }),
              AllOf(StartsWith("nccl: NCCL 2.14.0 or later is needed, and none is to be had: /nowhere/libnccl.so.2"),
                    HasSubstr("; LOCKSTEP_NCCL may name its file")));
  EXPECT_EQ(what_of([] { (void)load({"libm.so.6"}); }),
            "nccl: libm.so.6 has no function ncclGetVersion; NCCL 2.14.0 or later is needed");
  const Variable old("NCCL_STAND_IN_VERSION", "21003");
  EXPECT_EQ(what_of([] { (void)load({kStandIn}); }),
            std::string("nccl: ") + kStandIn + " is version 2.10.3; 2.14.0 or later is needed");
}

// Ranks that are threads, each with a device of its own.
void on_ranks(int ranks, const std::function<void(const std::shared_ptr<Group>&, at::Device)>& body,
              std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  sim::install(kDevices);
  support::run_ranks(RankKind::threads, ranks,
                     [&](auto inner) {
                       const auto group = std::make_shared<NcclGroup>(inner, load({kStandIn}));
                       body(group, sim::device(group->rank()));
                     },
                     {.timeout = timeout});
}

at::Tensor ones(at::Device device) { return torch::ones({4}, device); }

TEST(NcclGroup, CollectivesAreThoseOfTheHost) {
  for (const int ranks : {1, 2, 3})
    on_ranks(ranks, [](const auto& group, at::Device device) {
      support::expect_collectives_as_on_host(*group, device, /*exact=*/false);
      support::expect_order_in_a_stream(*group, device);
    });
}

TEST(NcclGroup, BooleansAreReducedAsOrAndAnd) {
  on_ranks(2, [](const auto& group, at::Device device) {
    const bool mine = group->rank() == 0;
    const auto all = [&](ReduceOp op) {
      const at::Tensor tensor = torch::tensor({true, mine, false}).to(device);
      group->all_reduce(tensor, op);
      return tensor.cpu();
    };
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max})
      EXPECT_TRUE(all(op).equal(torch::tensor({true, true, false})));
    for (const ReduceOp op : {ReduceOp::product, ReduceOp::min})
      EXPECT_TRUE(all(op).equal(torch::tensor({true, false, false})));
  });
}

TEST(NcclGroup, TrainsAsTheHostDoes) {
  const std::vector<at::Tensor> alone = support::train_classic(nullptr, at::kCPU);
  on_ranks(2, [&](const auto& group, at::Device device) {
    EXPECT_LT(support::distance(support::train_classic(group, device), alone), 1e-5);
    const parallel::DataParallelOptions views{.gradient_as_bucket_view = true, .buckets = {.bucket_cap_mb = 0.002}};
    EXPECT_LT(support::distance(support::train_classic(group, device, {.options = views}), alone), 1e-5);
  });
}

TEST(NcclGroup, NormalizesOverTheBatchesOfAllRanks) {
  for (const int ranks : {2, 3})
    on_ranks(ranks, [](const auto& group, at::Device device) {
      support::expect_norm_of_the_whole_batch(group, device);
      support::expect_norm_of_few_values(group, device);
    });
}

TEST(NcclGroup, TheHostDoesNotWaitForANormalization) {
  on_ranks(2, [](const auto& group, at::Device device) {
    parallel::SyncBatchNorm norm(torch::nn::BatchNormOptions(4), group);
    norm->to(device);
    const at::Tensor x = torch::rand({3, 4}).to(device).requires_grad_(true), dy = torch::ones({3, 4}).to(device);
    const auto pass = [&] { norm->forward(x).backward(dy); };
    pass();
    group->barrier();
    std::optional<sim::Recording> recording;
    if (group->rank() == 0) recording.emplace();
    group->barrier();
    for (int again = 0; again < 3; ++again) pass();
    group->barrier();
    if (!recording) return;
    EXPECT_GT(recording->history().size(), 20u);
    EXPECT_THAT(recording->report().host_waits, IsEmpty());
  });
}

TEST(NcclGroup, MakesOthers) {
  on_ranks(3, [](const auto& group, at::Device device) {
    const std::shared_ptr<Group> some = group->new_group({0, 2});
    EXPECT_EQ(some == nullptr, group->rank() == 1);
    const at::Tensor tensor = ones(device);
    if (some != nullptr) some->all_reduce(tensor);
    EXPECT_EQ(tensor.sum().template item<float>(), group->rank() == 1 ? 4 : 8);
  });
}

TEST(NcclGroup, NamesTheRankThatDoesNotCome) {
  static constexpr const char* kLate =
      "rank 1, outside a step: rank 0 waited 1000 ms for rank 1 (step 0, outside a step) in all_reduce of Float x 4, "
      "number 3 by NCCL";
  on_ranks(
      2,
      [](const auto& group, at::Device device) {
        group->all_reduce(ones(device));
        if (group->rank() == 0) {
          EXPECT_THAT(what_of([&] { group->all_reduce(ones(device)); }), HasSubstr(kLate));
          return;
        }
        // It hears of it without a call to NCCL.
        EXPECT_THAT(support::failure_of(*group), HasSubstr(kLate));
      },
      std::chrono::seconds(1));
}

// On whichever rank: by whoever has the group, and by the end of a rank.
TEST(NcclGroup, AFailureEndsWhatIsQueuedAndAnotherGroupCanBeMade) {
  on_ranks(3, [](const auto& group, at::Device device) {
    group->all_reduce(ones(device));
    group->barrier();  // nobody is in the first one any more
    if (group->rank() == 1) {
      group->abort("rank 1 has enough");
      return;
    }
    EXPECT_THAT(what_of([&] { group->all_reduce(ones(device)); }), HasSubstr("rank 1 has enough"));
    EXPECT_THROW(group->broadcast(ones(device), 0), GroupAborted);
  });
  on_ranks(3, [](const auto& group, at::Device device) {
    group->all_reduce(ones(device));
    if (group->rank() == 2) return;
    EXPECT_THROW(group->all_reduce(ones(device)), GroupAborted);
  });
  on_ranks(3, [](const auto& group, at::Device device) {
    const at::Tensor tensor = ones(device);
    group->all_reduce(tensor);
    EXPECT_EQ(tensor.sum().template item<float>(), 12);
  });
}

TEST(NcclGroup, AnErrorOfNcclsIsTheFailureOfTheGroup) {
  const Variable fault("NCCL_STAND_IN_ERROR", "1:2");
  on_ranks(2, [](const auto& group, at::Device device) {
    group->all_reduce(ones(device));
    group->barrier();  // nobody is in the first one any more
    const std::string what = what_of([&] { group->all_reduce(ones(device)); });
    EXPECT_THAT(what, HasSubstr("remote process exited or there was a network error (the stand-in was told to fail)"));
    EXPECT_THROW(group->barrier(), GroupAborted);
  });
}

TEST(NcclGroup, RefusesWhatIsNotOnOneDevice) {
  on_ranks(1, [](const auto& group, at::Device device) {
    const at::Tensor there = ones(device);
    EXPECT_THAT(what_of([&] { group->reduce_scatter(torch::ones({4}), there); }),
                HasSubstr("output is on cpu, input on"));
    const at::Tensor whole = there.to(at::kLong);
    EXPECT_THAT(what_of([&] { group->all_reduce(whole, ReduceOp::mean); }), HasSubstr("Long has no mean"));
    group->all_reduce(there);  // the group can be used
  });
}

TEST(NcclGroup, TwoRanksOnOneGpuAreToldOfIpc) {
  const Variable error("NCCL_STAND_IN_ERROR", "0:1");
  const Variable words("NCCL_STAND_IN_WORDS", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000");
  on_ranks(2, [](const auto& group, at::Device device) {
    EXPECT_THAT(what_of([&] {
                  for (;;) group->all_reduce(ones(device));
                }),
                HasSubstr("backend 'ipc' is for several ranks on one GPU"));
  });
}

TEST(NcclGroup, IsABackendOfInit) {
  sim::install(kDevices);
  const Variable library("LOCKSTEP_NCCL", kStandIn);
  const World world = init({.backend = "nccl", .threads = 0, .idle_cores_hint = false});
  EXPECT_NE(dynamic_cast<NcclGroup*>(world.group().get()), nullptr);
  const at::Tensor tensor = ones(sim::device(0));
  world.all_reduce(tensor);
  EXPECT_EQ(tensor.sum().item<float>(), 4);
}

TEST(NcclGroup, InitSaysThatThereIsNoNccl) {
  const Variable library("LOCKSTEP_NCCL", "/nowhere/libnccl.so.2");
  EXPECT_THAT(what_of([] { (void)init({.backend = "nccl", .threads = 0, .idle_cores_hint = false}); }),
              StartsWith("nccl: NCCL 2.14.0 or later is needed, and none is to be had: /nowhere/libnccl.so.2"));
}

}  // namespace
}  // namespace lockstep::comm::nccl
