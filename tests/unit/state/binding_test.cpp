#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/segment.h"
#include "lockstep/state/mapped_binding.h"
#include "lockstep/state/write_guard.h"

namespace lockstep::state {
namespace {

struct TwoBuffers {
  at::Tensor w = torch::rand({3, 4}).requires_grad_();
  at::Tensor b = torch::rand({5}).requires_grad_();
  Layout layout{specs_of({{"w", w}, {"b", b}}, true), {}, {}};
  base::Segment segment = base::Segment::create(1);
  std::size_t offset = segment.grow(base::Area::state, layout.total_bytes());
  std::shared_ptr<base::Mapping> read =
      std::make_shared<base::Mapping>(segment.map(offset, layout.total_bytes(), base::Access::read_only));
  base::Mapping write = segment.map(offset, layout.total_bytes(), base::Access::read_write);

  void fill(int buffer, float value) {
    auto* weights = reinterpret_cast<float*>(write.data() + layout.weights(buffer));
    std::fill_n(weights, layout.elements(), value);
  }
  const std::byte* weights(int buffer) const { return read->data() + layout.weights(buffer); }
  MappedBinding bind(int buffer) { return {{w, b}, parameter_places(layout), read, weights(buffer)}; }
};

TEST(Binding, ParametersDetachedTensorsAndViewsFollow) {
  TwoBuffers t;
  t.fill(0, 1);
  t.fill(1, 2);
  MappedBinding binding = t.bind(0);
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
  MappedBinding binding = t.bind(0);
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
  { MappedBinding binding = t.bind(0); }
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
  MappedBinding binding({w}, parameter_places(layout), nullptr, bytes);
  EXPECT_EQ(w.strides(), before.strides());
  EXPECT_TRUE(torch::equal(w, before));
}

TEST(Binding, WhatSharesItsMemoryIsValidAsLongAsItIsKept) {
  at::Tensor detached;
  at::Tensor master;
  const void* mapped = nullptr;
  {
    TwoBuffers t;
    t.fill(1, 3);
    MappedBinding binding = t.bind(0);
    binding.point_to(t.weights(1));
    detached = t.w.detach();
    master = binding.master(0);
    mapped = t.w.data_ptr();
  }
  EXPECT_EQ(detached.data_ptr(), mapped);
  EXPECT_EQ(detached.sum().item<float>(), 36);
  EXPECT_EQ(master.sum().item<float>(), 36);
}

TEST(Binding, KeepsTheMappingNoLongerThanNeeded) {
  TwoBuffers t;
  t.fill(0, 1);
  const std::weak_ptr<base::Mapping> mapping = t.read;
  at::Tensor kept;
  {
    MappedBinding binding = t.bind(0);
    for (int i = 0; i < 10; ++i) binding.point_to(t.weights(i % 2));
    kept = t.w.detach();
    t.read.reset();
  }
  EXPECT_FALSE(mapping.expired());
  kept.reset();
  EXPECT_TRUE(mapping.expired());
}

TEST(Binding, NamesWhatSomebodyReplaced) {
  using Replace = void (*)(TwoBuffers&);
  const Replace kinds[] = {[](TwoBuffers& t) { t.b.set_data(torch::zeros({5})); },
                           [](TwoBuffers& t) {
                             t.b.set_data(t.b.detach().view({5, 1}));
                           },
                           [](TwoBuffers& t) { t.b.set_data(torch::zeros({5}, torch::kDouble)); },
                           [](TwoBuffers& t) {
                             const torch::NoGradGuard no_grad;
                             t.b.set_(torch::zeros({5}));
                           }};
  for (const Replace replace : kinds) {
    TwoBuffers t;
    t.fill(0, 1);
    MappedBinding binding = t.bind(0);
    EXPECT_EQ(binding.replaced(), nullptr);
    replace(t);
    ASSERT_NE(binding.replaced(), nullptr);
    EXPECT_EQ(*binding.replaced(), "b");
    binding.restore();
    EXPECT_EQ(binding.replaced(), nullptr);
    EXPECT_EQ(t.b.sum().item<float>(), 5);
  }
}

TEST(Binding, LeavesAReplacedTensorToWhoeverReplacedIt) {
  TwoBuffers t;
  t.fill(0, 1);
  t.fill(1, 2);
  at::Tensor mine = torch::full({5}, 9.0);
  const void* const memory = mine.data_ptr();
  {
    MappedBinding binding = t.bind(0);
    t.b.set_data(mine);
    binding.point_to(t.weights(1));
    EXPECT_EQ(t.w.sum().item<float>(), 24);
  }
  EXPECT_EQ(mine.data_ptr(), memory);
  EXPECT_EQ(t.b.data_ptr(), memory);
  EXPECT_EQ(mine.sum().item<float>(), 45);
}

TEST(Binding, TakesOverTheValuesOfAReplacedTensor) {
  TwoBuffers t;
  t.fill(1, 2);
  MappedBinding binding = t.bind(0);
  binding.point_to(t.write.data() + t.layout.weights(1));
  t.w.set_data(torch::full({4, 3}, 7.0).t());
  binding.take_over();
  EXPECT_EQ(binding.replaced(), nullptr);
  EXPECT_TRUE(t.w.is_contiguous());
  binding.point_to(t.weights(1));
  EXPECT_EQ(t.w.sum().item<float>(), 84);
  EXPECT_EQ(t.b.sum().item<float>(), 10);
  t.b.set_data(torch::zeros({6}));
  EXPECT_THROW(binding.take_over(), UsageError);
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
        MappedBinding binding = t.bind(1);
        WriteGuard guard(t.read->data(), t.layout);
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
        WriteGuard guard(t.read->data(), t.layout);
        void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *static_cast<volatile int*>(page) = 1;
      },
      died_of_the_fault, "");
}

TEST(WriteGuardDeathTest, FrozenParametersAreNamedToo) {
  EXPECT_DEATH(
      {
        const Layout layout({}, {}, {}, specs_of({{"table", torch::zeros({7}, torch::kHalf)}}, false));
        base::Segment segment = base::Segment::create(1);
        const std::size_t offset = segment.grow(base::Area::state, layout.total_bytes());
        const base::Mapping read = segment.map(offset, layout.total_bytes(), base::Access::read_only);
        WriteGuard guard(read.data(), layout);
        *reinterpret_cast<volatile char*>(read.data() + layout.frozen_area(1)) = 1;
      },
      "parameter 'table' was edited in place");
}

bool died_of_a_sent_signal(int status) { return died_of_the_fault(status) && !WIFEXITED(status); }

TEST(WriteGuardDeathTest, ASignalThatSomebodySendsIsNotSwallowed) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_DFL);  // whatever a sanitizer had there
        TwoBuffers t;
        WriteGuard guard(t.read->data(), t.layout);
        kill(getpid(), SIGSEGV);
        _exit(0);
      },
      died_of_a_sent_signal, "");
}

TEST(WriteGuardDeathTest, ASentSignalGoesToTheHandlerBeforeAndLeavesTheGuard) {
  EXPECT_DEATH(
      {
        static volatile sig_atomic_t sent = 0;
        signal(SIGSEGV, [](int) {
          const char text[] = "theirs ";
          if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(9);
          sent = sent + 1;
          if (sent == 2) _exit(9);
        });
        TwoBuffers t;
        MappedBinding binding = t.bind(0);
        WriteGuard guard(t.read->data(), t.layout);
        kill(getpid(), SIGSEGV);
        t.b.detach().add_(1);  // goes to the handler before, too, after it was named
      },
      "theirs .*parameter 'b' was edited in place.*theirs");
}

TEST(WriteGuardDeathTest, ManyModelsAtOnce) {
  EXPECT_DEATH(
      {
        std::vector<std::unique_ptr<TwoBuffers>> models;
        std::vector<std::unique_ptr<WriteGuard>> guards;
        for (int i = 0; i < 100; ++i) {
          models.push_back(std::make_unique<TwoBuffers>());
          guards.push_back(std::make_unique<WriteGuard>(models.back()->read->data(), models.back()->layout));
        }
        const MappedBinding binding = models[60]->bind(0);
        models[60]->w.detach().add_(1);
      },
      "parameter 'w' was edited in place");
}

}  // namespace
}  // namespace lockstep::state
