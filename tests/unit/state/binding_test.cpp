#include "lockstep/state/binding.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <torch/types.h>

#include <csignal>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/segment.h"
#include "lockstep/state/write_guard.h"

namespace lockstep::state {
namespace {

struct TwoBuffers {
  at::Tensor w = torch::rand({3, 4}).requires_grad_();
  at::Tensor b = torch::rand({5}).requires_grad_();
  Layout layout{specs_of({{"w", w}, {"b", b}}, true), {}, {}};
  base::Segment segment = base::Segment::create(1);
  std::size_t offset = segment.grow(layout.total_bytes());
  base::Mapping read = segment.map(offset, layout.total_bytes(), base::Access::read_only);
  base::Mapping write = segment.map(offset, layout.total_bytes(), base::Access::read_write);

  void fill(int buffer, float value) {
    auto* weights = reinterpret_cast<float*>(write.data() + layout.weights(buffer));
    std::fill_n(weights, layout.elements(), value);
  }
  const std::byte* weights(int buffer) const { return read.data() + layout.weights(buffer); }
};

TEST(Binding, ParametersDetachedTensorsAndViewsFollow) {
  TwoBuffers t;
  t.fill(0, 1);
  t.fill(1, 2);
  Binding binding({t.w, t.b}, t.layout, t.weights(0));
  const at::Tensor detached = t.w.detach();
  const at::Tensor row = t.w.detach()[1];
  EXPECT_EQ(detached.sum().item<float>(), 12);
  const auto version = t.w._version();
  binding.point_to(t.weights(1));
  EXPECT_EQ(t.w.sum().item<float>(), 24);
  EXPECT_EQ(detached.sum().item<float>(), 24);
  EXPECT_EQ(row.sum().item<float>(), 8);
  EXPECT_EQ(t.b.sum().item<float>(), 10);
  EXPECT_GT(t.w._version(), version);
  EXPECT_TRUE(t.w.requires_grad() && t.w.is_leaf());
}

TEST(Binding, AStaleGraphRaisesTorchsOwnError) {
  TwoBuffers t;
  t.fill(0, 1);
  t.fill(1, 2);
  Binding binding({t.w, t.b}, t.layout, t.weights(0));
  const at::Tensor loss = (t.w * t.w).sum();
  binding.point_to(t.weights(1));
  try {
    loss.backward();
    ADD_FAILURE() << "a stale graph ran";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("modified by an inplace operation"), std::string::npos);
  }
}

TEST(Binding, LeavesPrivateTensorsBehind) {
  TwoBuffers t;
  t.fill(0, 7);
  { Binding binding({t.w, t.b}, t.layout, t.weights(0)); }
  t.fill(0, 8);
  EXPECT_EQ(t.w.sum().item<float>(), 84);
  t.w.detach().zero_();
  EXPECT_EQ(t.w.sum().item<float>(), 0);
}

TEST(Binding, KeepsStrides) {
  at::Tensor w = torch::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor before = w.clone();
  const Layout layout(specs_of({{"w", w}}, true), {}, {});
  std::vector<float> memory(layout.elements());
  auto* bytes = reinterpret_cast<std::byte*>(memory.data());
  view_of(layout.parameters()[0].spec, bytes).copy_(w);
  Binding binding({w}, layout, bytes);
  EXPECT_EQ(w.strides(), before.strides());
  EXPECT_TRUE(torch::equal(w, before));
}

TEST(Binding, RefusesWhatItCannotHold) {
  EXPECT_THROW(specs_of({{"h", torch::zeros({2}, torch::kHalf)}}, true), UsageError);
  EXPECT_THROW(specs_of({{"e", torch::zeros({1}).expand({4})}}, true), UsageError);
  EXPECT_THROW(specs_of({{"s", torch::zeros({8}).slice(0, 0, 8, 2)}}, true), UsageError);
  EXPECT_NO_THROW(specs_of({{"h", torch::zeros({2}, torch::kHalf)}}, false));
}

TEST(WriteGuardDeathTest, AStrayEditNamesTheParameter) {
  testing::FLAGS_gtest_death_test_style = "fast";
  EXPECT_DEATH(
      {
        TwoBuffers t;
        Binding binding({t.w, t.b}, t.layout, t.weights(1));
        WriteGuard guard(t.read.data(), t.layout);
        t.b.detach().add_(1);
      },
      "parameter 'b' was edited in place.*ddp.modify");
}

// Killed by the signal, or ended by a sanitizer's handler, which was there before ours.
bool died_of_the_fault(int status) {
  return WIFSIGNALED(status) ? WTERMSIG(status) == SIGSEGV : WEXITSTATUS(status) != 0;
}

TEST(WriteGuardDeathTest, OtherFaultsPassUntouched) {
  EXPECT_EXIT(
      {
        TwoBuffers t;
        WriteGuard guard(t.read.data(), t.layout);
        void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *static_cast<volatile int*>(page) = 1;
      },
      died_of_the_fault, "");
}

}  // namespace
}  // namespace lockstep::state
