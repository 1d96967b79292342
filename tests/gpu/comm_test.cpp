// Groups and the classic path on a GPU, with several ranks on one: through the host's memory, through memory
// of the GPU, and by NCCL, which takes the ranks for several hosts (NCCL_HOSTID), since it has no two of a host on one
// GPU.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>

#include "lockstep/comm/ipc/ipc_group.h"
#include "lockstep/comm/nccl/nccl_group.h"
#include "lockstep/comm/shm/shm_group.h"
#include "tests/support/device/comm_cases.h"
#include "tests/support/ranks.h"
#include "tests/support/what_of.h"

namespace lockstep::comm {
namespace {

using support::distance;
using support::RankKind;
using support::train_classic;
using support::what_of;
using ::testing::HasSubstr;

// In a process of its own: CUDA is of no use behind a fork of one that has looked.
int count_gpus() {
  const pid_t child = fork();
  if (child == 0) {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) _exit(0);
    const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
    int found = 0;
    _exit(init(0) == 0 && count(&found) == 0 ? found : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

// Before anything asks libtorch about CUDA.
at::Device first_gpu() {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) throw std::runtime_error(dlerror());
  return {at::kCUDA, 0};
}

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    static const int gpus = count_gpus();
    if (gpus == 0) GTEST_SKIP() << "no CUDA device: the driver (libcuda.so.1) is not there, or tells of none";
  }

  static void on_ranks(int ranks, const support::RankBody& body, support::RankOptions options = {}) {
    support::run_ranks(RankKind::processes, ranks, body, options);
  }
};

class GpuNccl : public Gpu {
 protected:
  static std::shared_ptr<Group> over(const std::shared_ptr<Group>& inner) {
    ::setenv("NCCL_HOSTID", ("rank-" + std::to_string(inner->rank())).c_str(), 1);
    for (const auto& [name, value] : {std::pair("NCCL_P2P_DISABLE", "1"), std::pair("NCCL_SHM_DISABLE", "1"),
                                      std::pair("NCCL_IB_DISABLE", "1"), std::pair("NCCL_SOCKET_IFNAME", "lo")})
      ::setenv(name, value, 1);
    return std::make_shared<nccl::NcclGroup>(inner, nccl::load());
  }
};

TEST_F(Gpu, GroupsGiveWhatTheyGiveOnTheHost) {
  on_ranks(2, [](const auto& group) {
    const at::Device gpu = first_gpu();
    support::expect_collectives_as_on_host(*group, gpu);
    support::expect_order_in_a_stream(*group, gpu);
  });
}

TEST_F(Gpu, TheClassicPathTrainsAsOneProcessDoes) {
  on_ranks(2, [](const auto& group) {
    const at::Device gpu = first_gpu();
    const std::vector<at::Tensor> alone = train_classic(nullptr, at::kCPU);
    const parallel::BucketOptions small{.bucket_cap_mb = 0.002};
    EXPECT_LT(distance(train_classic(group, gpu), alone), 1e-5);
    EXPECT_LT(distance(train_classic(group, gpu, {.options = {.device_ids = {gpu}, .buckets = small}}), alone), 1e-5);
    EXPECT_LT(
        distance(train_classic(group, gpu, {.options = {.gradient_as_bucket_view = true, .buckets = small}}), alone),
        1e-5);
    const support::ClassicJob sums{.accumulates = true};
    EXPECT_LT(distance(train_classic(group, gpu, sums), train_classic(nullptr, at::kCPU, sums)), 1e-5);
    const support::ClassicJob unused{.options = {.find_unused_parameters = true}, .leaves_one_out = true};
    EXPECT_LT(distance(train_classic(group, gpu, unused), train_classic(nullptr, at::kCPU, unused)), 1e-5);
    const support::ClassicJob uneven{.options = {.verify_replicas_every = 1}, .more_of_rank_0 = 1};
    EXPECT_LT(distance(train_classic(group, gpu, uneven), train_classic(group, at::kCPU, uneven)), 1e-5);
  });
}

TEST_F(GpuNccl, CollectivesAreThoseOfTheHost) {
  on_ranks(2,
           [](const auto& inner) {
             const at::Device gpu = first_gpu();
             const auto group = over(inner);
             support::expect_collectives_as_on_host(*group, gpu, /*exact=*/false);
             support::expect_order_in_a_stream(*group, gpu);
           },
           {.timeout = std::chrono::seconds(60)});
}

TEST_F(GpuNccl, TheClassicPathTrainsAsOneProcessDoes) {
  on_ranks(2,
           [](const auto& inner) {
             const at::Device gpu = first_gpu();
             const auto group = over(inner);
             const std::vector<at::Tensor> alone = train_classic(nullptr, at::kCPU);
             const parallel::BucketOptions small{.bucket_cap_mb = 0.002};
             EXPECT_LT(distance(train_classic(group, gpu, {.options = {.buckets = small}}), alone), 1e-5);
             EXPECT_LT(
                 distance(train_classic(group, gpu, {.options = {.gradient_as_bucket_view = true, .buckets = small}}),
                          alone),
                 1e-5);
           },
           {.timeout = std::chrono::seconds(60)});
}

// A collective that a rank never comes to ends on the device, too, and what was lost can be made anew.
TEST_F(GpuNccl, ARankThatDoesNotComeIsNamedAndAnotherGroupCanBeMade) {
  const base::Segment second = base::Segment::create(2);
  const std::string path = second.path();
  on_ranks(2,
           [&](const auto& inner) {
             const at::Device gpu = first_gpu();
             const at::Tensor tensor = torch::ones({1000}, gpu);
             {
               const auto group = over(inner);
               group->all_reduce(tensor);
               EXPECT_EQ(tensor.sum().template item<float>(), 2000);
               if (group->rank() == 0) {
                 group->all_reduce(tensor);
                 (void)tensor.sum().template item<float>();  // returns, with whatever there is
                 EXPECT_THAT(what_of([&] {
                               for (;;) group->all_reduce(tensor);
                             }),
                             HasSubstr("in all_reduce of Float x 1000, number 3 by NCCL"));
               } else {
                 EXPECT_THAT(support::failure_of(*group), HasSubstr("waited 10000 ms for rank 1"));
               }
             }
             const auto again = over(std::make_shared<ShmGroup>(base::Segment::open(path, 2), inner->rank()));
             tensor.fill_(3);
             again->all_reduce(tensor);
             EXPECT_EQ(tensor.sum().template item<float>(), 6000);
           },
           {.timeout = std::chrono::seconds(10)});
}

class GpuIpc : public Gpu {
 protected:
  using Body = std::function<void(const std::shared_ptr<Group>& group, const std::shared_ptr<Group>& inner)>;
  static void by_ipc(int ranks, const Body& body) {
    on_ranks(ranks,
             [&](const auto& inner) {
               (void)first_gpu();
               body(ipc::over_device_memory(inner), inner);
             },
             {.timeout = std::chrono::seconds(60)});
  }
};

// Several ranks on one GPU, and the bits of the host.
TEST_F(GpuIpc, CollectivesAreThoseOfTheHost) {
  for (const int ranks : {2, 3})
    by_ipc(ranks, [](const auto& group, const auto& inner) {
      const at::Device gpu(at::kCUDA, 0);
      support::expect_collectives_as_on_host(*group, gpu);
      support::expect_order_in_a_stream(*group, gpu);
      const at::Tensor drawn = torch::randn({3 << 20}) * (group->rank() + 1);
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf})
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::product, ReduceOp::min}) {
          const at::Tensor here = drawn.to(dtype, false, true), there = here.to(gpu);
          inner->all_reduce(here, op);
          group->all_reduce(there, op);
          EXPECT_TRUE(there.cpu().equal(here)) << c10::toString(dtype) << ", op " << int(op);
        }
    });
}

TEST_F(GpuIpc, TheClassicPathTrainsAsOverTheHost) {
  for (const int ranks : {2, 3})
    by_ipc(ranks, [](const auto& group, const auto& inner) {
      const at::Device gpu(at::kCUDA, 0);
      const support::ClassicJob job{.options = {.gradient_as_bucket_view = true, .buckets = {.bucket_cap_mb = 0.002}}};
      EXPECT_LT(distance(train_classic(group, gpu, job), train_classic(inner, gpu, job)), 1e-6);
    });
}

}  // namespace
}  // namespace lockstep::comm
