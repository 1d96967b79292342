#include "lockstep/data/batch_memory.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <thread>

namespace lockstep::data {
namespace {

TEST(BatchMemory, IsHandedOutAgainWhenTheLastViewIsGone) {
  const BatchMemory memory;
  at::Tensor first = memory.empty({4, 3, 8, 8}, at::kFloat);
  const void* const place = first.data_ptr();
  at::Tensor view = first.slice(0, 1, 2);
  first.reset();
  EXPECT_NE(memory.empty({4, 3, 8, 8}, at::kFloat).data_ptr(), place) << "a view still has it";
  view.reset();
  EXPECT_EQ(memory.empty({2, 3, 8, 8}, at::kFloat).data_ptr(), place) << "also for a smaller batch";
}

TEST(BatchMemory, TensorsAreLikeThoseOfTorch) {
  const BatchMemory memory;
  for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      at::Tensor tensor = memory.empty({5, 3, 7, 9}, type, format);
      const at::Tensor expected = torch::empty({5, 3, 7, 9}, at::TensorOptions().dtype(type), format);
      EXPECT_EQ(tensor.sizes(), expected.sizes());
      EXPECT_EQ(tensor.strides(), expected.strides());
      EXPECT_EQ(tensor.scalar_type(), type);
      EXPECT_EQ(std::uintptr_t(tensor.data_ptr()) % 64, 0u);
      tensor.fill_(2);
      EXPECT_TRUE(tensor.eq(2).all().item<bool>());
    }
  }
}

TEST(BatchMemory, KeepsFewBytesWhateverWasUsed) {
  const BatchMemory memory;
  const auto use = [&](std::int64_t megabytes, int tensors) {
    std::vector<at::Tensor> together;
    for (int i = 0; i < tensors; ++i) together.push_back(memory.empty({megabytes << 20}, at::kByte));
  };
  const auto unused = [&] { return memory.unused_bytes() >> 20; };
  use(60, 6);
  EXPECT_EQ(unused(), 240u);
  use(300, 3);
  EXPECT_EQ(unused(), 600u) << "batches of a size take turns, whatever it is";
  use(60, 1);
  EXPECT_LE(unused(), BatchMemory::kKeptBytes >> 20) << "large ones of before do not stay";
}

TEST(BatchMemory, TensorsOutliveItAndGoToOtherThreads) {
  std::vector<at::Tensor> tensors;
  {
    std::optional<BatchMemory> memory(std::in_place);
    for (std::size_t i = 0; i < 2 * BatchMemory::kKept; ++i) tensors.push_back(memory->empty({3 << 20}, at::kByte));
    std::thread([some = std::move(tensors.back())]() mutable { some.fill_(1), some.reset(); }).join();
    tensors.pop_back();
  }
  for (at::Tensor& tensor : tensors) tensor.fill_(3);
  EXPECT_EQ(tensors[0].max().item<int>(), 3);
}

}  // namespace
}  // namespace lockstep::data
