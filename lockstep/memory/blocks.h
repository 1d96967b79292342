#pragma once

// A block of memory: a header of 64 bytes and, right behind it, what the user gets. Where blocks come from and go to:
// the C library, or for the large ones the kernel, in huge pages where it has them.

#include <cstddef>
#include <cstdint>

#include "lockstep/memory/size_class.h"

namespace lockstep::memory {

/// The header. A kept block is linked by `next`.
struct alignas(kAlignment) Block {
  Block* next = nullptr;
  std::uint32_t size_class = 0;

  std::size_t bytes() const { return bytes_of_size_class(size_class); }
  void* memory() { return this + 1; }
  static Block* of(void* memory) { return static_cast<Block*>(memory) - 1; }
};
static_assert(sizeof(Block) == kAlignment);

/// Kept blocks of one class, the last one in front: it is the one that the caches still know.
class FreeList {
 public:
  std::size_t count() const { return count_; }
  void push(Block* block) {
    block->next = first_;
    first_ = block;
    ++count_;
  }
  /// nullptr: empty.
  Block* pop() {
    Block* const block = first_;
    if (block == nullptr) return nullptr;
    first_ = block->next;
    --count_;
    return block;
  }

 private:
  Block* first_ = nullptr;
  std::size_t count_ = 0;
};

/// From this size on a block is a mapping of its own that starts at a huge page's boundary.
inline constexpr std::size_t kMappedBytes = 2 << 20;

/// A new block; nullptr when there is no memory. Its content is undefined.
Block* new_block(std::size_t size_class);

/// Gives a block back to where it came from.
void delete_block(Block* block);

/// Tells AddressSanitizer how much of a block may be touched: the first `bytes`. Nothing in other builds.
void allow_access(Block* block, std::size_t bytes);

}  // namespace lockstep::memory
