#include "lockstep/data/pixel_memory.h"

#include <algorithm>
#include <array>
#include <bit>
#include <new>

namespace lockstep::data {
namespace {

constexpr std::size_t kSmall = 32 << 10;

// Blocks have one of eight sizes between two powers of two, so that one fits pictures of similar sizes.
std::size_t size_class(std::size_t bytes) {
  if (bytes < kSmall) return bytes;
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

struct Block {
  std::uint8_t* memory = nullptr;
  std::size_t size = 0;
};

// The thread's unused blocks, oldest first; trivial, so that it can be used while a thread ends.
struct Unused {
  std::array<Block, 8> blocks;
  std::size_t count = 0;
  bool closed = false;  // the thread ends
};
thread_local constinit Unused unused;

struct Closer {
  ~Closer() {
    for (std::size_t i = 0; i < unused.count; ++i) ::operator delete(unused.blocks[i].memory);
    unused.count = 0;
    unused.closed = true;
  }
};

std::size_t kept_bytes() {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < unused.count; ++i) bytes += unused.blocks[i].size;
  return bytes;
}

void drop(std::size_t place) {
  std::move(unused.blocks.begin() + std::ptrdiff_t(place) + 1, unused.blocks.begin() + std::ptrdiff_t(unused.count),
            unused.blocks.begin() + std::ptrdiff_t(place));
  --unused.count;
}

}  // namespace

PixelMemory pixel_memory(std::size_t bytes) {
  const std::size_t size = size_class(bytes);
  for (std::size_t i = unused.count; size >= kSmall && i-- > 0;) {
    if (unused.blocks[i].size != size) continue;
    std::uint8_t* const memory = unused.blocks[i].memory;
    drop(i);
    return {memory, {bytes}};
  }
  return {static_cast<std::uint8_t*>(::operator new(size)), {bytes}};
}

void PixelMemoryDeleter::operator()(std::uint8_t* memory) const {
  const std::size_t size = size_class(bytes);
  if (size < kSmall || size > kKeptPixelBytes || unused.closed) return ::operator delete(memory);
  thread_local const Closer closer;
  while (unused.count == unused.blocks.size() || kept_bytes() + size > kKeptPixelBytes) {
    ::operator delete(unused.blocks[0].memory);
    drop(0);
  }
  unused.blocks[unused.count++] = {memory, size};
}

std::size_t kept_pixel_bytes() { return kept_bytes(); }

}  // namespace lockstep::data
