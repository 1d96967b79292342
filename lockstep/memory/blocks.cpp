#include "lockstep/memory/blocks.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace lockstep::memory {
namespace {

constexpr std::size_t kHugePage = 2 << 20;
constexpr std::size_t kPage = 4096;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::size_t length(std::size_t block_bytes) { return rounded_up(sizeof(Block) + block_bytes, kPage); }

// A mapping cannot be asked for at a boundary: take more and give back what is before and behind.
void* map(std::size_t bytes) {
  void* found = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(found);
  const std::size_t before =
      rounded_up(reinterpret_cast<std::uintptr_t>(begin), kHugePage) - reinterpret_cast<std::uintptr_t>(begin);
  if (before > 0) munmap(begin, before);
  if (before < kHugePage) munmap(begin + before + bytes, kHugePage - before);
  madvise(begin + before, bytes, MADV_HUGEPAGE);  // a kernel without huge pages refuses; its small ones do
  return begin + before;
}

}  // namespace

Block* new_block(std::size_t size_class) {
  const std::size_t bytes = bytes_of_size_class(size_class);
  void* found = nullptr;
  if (bytes >= kMappedBytes) {
    found = map(length(bytes));
  } else if (posix_memalign(&found, kAlignment, sizeof(Block) + bytes) != 0) {
    found = nullptr;
  }
  if (found == nullptr) return nullptr;
  return new (found) Block{.size_class = static_cast<std::uint32_t>(size_class)};
}

void delete_block(Block* block) {
  const std::size_t bytes = block->bytes();
  allow_access(block, bytes);  // the next owner of these addresses knows nothing of us
  if (bytes >= kMappedBytes) {
    munmap(block, length(bytes));
  } else {
    std::free(block);
  }
}

void allow_access(Block* block, std::size_t bytes) {
  [[maybe_unused]] auto* const begin = static_cast<std::byte*>(block->memory());
  ASAN_UNPOISON_MEMORY_REGION(begin, bytes);
  ASAN_POISON_MEMORY_REGION(begin + bytes, block->bytes() - bytes);
}

}  // namespace lockstep::memory
