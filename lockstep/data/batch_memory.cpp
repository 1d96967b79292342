#include "lockstep/data/batch_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace lockstep::data {
namespace {

constexpr std::size_t kHugePage = std::size_t(2) << 20;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

struct Block {
  std::unique_ptr<void, Free> memory;
  std::size_t bytes = 0;
};

Block new_block(std::size_t bytes) {
  const bool huge = bytes >= kHugePage;
  const std::size_t alignment = huge ? kHugePage : 64;
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  Block block{std::unique_ptr<void, Free>(std::aligned_alloc(alignment, whole)), whole};
  if (!block.memory) throw std::bad_alloc();
  if (huge) madvise(block.memory.get(), whole, MADV_HUGEPAGE);  // a kernel without them changes nothing
  return block;
}

}  // namespace

struct BatchMemory::Blocks {
  std::mutex mutex;
  std::vector<Block> unused;  // the last is the one most likely to be in a cache

  Block take(std::size_t bytes) {
    const std::lock_guard lock(mutex);
    for (auto block = unused.rbegin(); block != unused.rend(); ++block) {
      if (block->bytes < bytes) continue;
      Block taken = std::move(*block);
      unused.erase(std::next(block).base());
      return taken;
    }
    return {};
  }

  void give_back(Block block, std::size_t asked_for) {
    std::vector<Block> too_many;  // freed after the lock
    const std::size_t most = std::max(kKeptBytes, 2 * asked_for);
    const std::lock_guard lock(mutex);
    unused.push_back(std::move(block));
    auto kept = unused.begin();
    for (std::size_t left = bytes(); std::size_t(unused.end() - kept) > kKept || left > most; ++kept) {
      left -= kept->bytes;
      too_many.push_back(std::move(*kept));
    }
    unused.erase(unused.begin(), kept);
  }

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Block& block : unused) sum += block.bytes;
    return sum;
  }
};

BatchMemory::BatchMemory(bool pinned) : blocks_(std::make_shared<Blocks>()), pinned_(pinned) {}

std::size_t BatchMemory::unused_bytes() const {
  const std::lock_guard lock(blocks_->mutex);
  return blocks_->bytes();
}

at::Tensor BatchMemory::empty(at::IntArrayRef sizes, at::ScalarType type, at::MemoryFormat format) const {
  if (pinned_) return at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(true), format);
  const auto count = std::size_t(c10::multiply_integers(sizes));
  const std::size_t bytes = count * c10::elementSize(type);
  Block block = blocks_->take(bytes);
  if (!block.memory) block = new_block(bytes);
  const auto strides = format == at::MemoryFormat::ChannelsLast
                           ? at::DimVector(c10::get_channels_last_strides_2d(sizes))
                           : at::DimVector(c10::contiguous_strides(sizes));
  const auto give_back = [blocks = blocks_, whole = block.bytes, bytes](void* memory) {
    blocks->give_back({std::unique_ptr<void, Free>(memory), whole}, bytes);
  };
  return at::from_blob(block.memory.release(), sizes, strides, give_back, at::TensorOptions().dtype(type));
}

}  // namespace lockstep::data
