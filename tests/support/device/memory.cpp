// The devices' memory and pinned memory: blocks of the host's, kept for reuse.

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "tests/support/device/runtime.h"
#include "tests/support/device/sim_device.h"

namespace lockstep::testing::sim {
namespace {

constexpr std::size_t kAlignment = 512;

std::size_t rounded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void* from_host(std::size_t bytes) {
  void* block = std::aligned_alloc(kAlignment, bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

// The block that an address is in, of blocks by their beginning.
template <class Blocks>
auto* holding(Blocks& blocks, const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return static_cast<decltype(&after->second)>(nullptr);
  --after;
  return address < after->first + after->second.bytes ? &after->second : nullptr;
}

constexpr std::size_t kBytesOfADevice = std::size_t{16} << 30;

// As CUDA's caching allocator: a block belongs to the stream that was current when it was first asked for, and goes
// back to that stream's list at once when the host gives it up, whatever the device still does with it.
class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t count) override {
    const c10::DeviceIndex index = current_device();
    const c10::Device device(kSim, index);
    if (count == 0) return {nullptr, device};
    const StreamName stream = name_of(current_stream(index));
    const std::size_t bytes = rounded(count);
    void* const block = take(stream, bytes);
    if (recording()) {
      log({.kind = Kind::allocate, .stream = stream, .name = "allocate", .writes = {range_of(block, bytes)}});
    }
    return {block, block, &give_back, device};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }
  bool initialized() override { return true; }

  void emptyCache(c10::MempoolId_t pool) override {
    const std::lock_guard lock(mutex_);
    for (const auto& [place, blocks] : free_) {
      for (void* block : blocks) std::free(block);
      add(books_of(place.first.device).reserved_bytes, -static_cast<std::int64_t>(place.second * blocks.size()));
    }
    free_.clear();
  }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (!recording()) return;
    Range range;
    {
      const std::lock_guard lock(mutex_);
      const auto block = blocks_.find(reinterpret_cast<std::uintptr_t>(data.get()));
      if (block == blocks_.end()) return;  // no memory of ours: a tensor over foreign bytes
      range = range_of(data.get(), block->second.bytes);
    }
    log({.kind = Kind::record_stream, .stream = name_of(stream), .name = "record_stream", .writes = {range}});
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    const std::lock_guard lock(mutex_);
    return books_of(index);
  }

  void resetAccumulatedStats(c10::DeviceIndex index) override {
    const std::lock_guard lock(mutex_);
    for (Stats* stats : all(books_of(index))) stats->front().reset_accumulated();
  }

  void resetPeakStats(c10::DeviceIndex index) override {
    const std::lock_guard lock(mutex_);
    for (Stats* stats : all(books_of(index))) stats->front().reset_peak();
  }

  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const std::lock_guard lock(mutex_);
    const std::size_t total = total_of(index);
    return {total - std::min(total, in_use(index)), total};
  }

  std::optional<c10::Device> device_of(const void* data) {
    const std::lock_guard lock(mutex_);
    const Block* block = holding(blocks_, data);
    if (block == nullptr) return std::nullopt;
    return device(block->stream.device);
  }

  void limit(int index, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    limits_.at(static_cast<std::size_t>(index)) = bytes;
  }

 private:
  using Books = c10::CachingDeviceAllocator::DeviceStats;
  using Stats = c10::CachingAllocator::StatArray;  // the first: all sizes
  struct Block {
    std::size_t bytes = 0;
    StreamName stream;
  };

  static void give_back(void* block);

  void* take(const StreamName& stream, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    Books& books = books_of(stream.device);
    if (in_use(stream.device) + bytes > total_of(stream.device)) {
      ++books.num_ooms;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "sim out of memory. Tried to allocate ", bytes, " bytes on device ",
                       stream.device, ": ", in_use(stream.device), " of ", total_of(stream.device), " are in use");
    }
    auto& kept = free_[{stream, bytes}];
    void* block = nullptr;
    if (kept.empty()) {
      block = from_host(bytes);
      add(books.reserved_bytes, static_cast<std::int64_t>(bytes));
    } else {
      block = kept.back();
      kept.pop_back();
    }
    blocks_[reinterpret_cast<std::uintptr_t>(block)] = {bytes, stream};
    add(books.allocated_bytes, static_cast<std::int64_t>(bytes));
    return block;
  }

  void release(void* data) {
    Block block;
    {
      const std::lock_guard lock(mutex_);
      const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(data));
      block = found->second;
      blocks_.erase(found);
    }
    // Before another thread can have it, so that the log has them in this order.
    if (recording()) {
      log({.kind = Kind::release, .stream = block.stream, .name = "release", .writes = {range_of(data, block.bytes)}});
    }
    const std::lock_guard lock(mutex_);
    add(books_of(block.stream.device).allocated_bytes, -static_cast<std::int64_t>(block.bytes));
    free_[{block.stream, block.bytes}].push_back(data);
  }

  static std::array<Stats*, 2> all(Books& books) { return {&books.allocated_bytes, &books.reserved_bytes}; }

  static void add(Stats& stats, std::int64_t bytes) {
    if (bytes < 0) stats.front().decrease(static_cast<std::size_t>(-bytes));
    if (bytes > 0) stats.front().increase(static_cast<std::size_t>(bytes));
  }

  Books& books_of(int index) { return books_.at(static_cast<std::size_t>(index)); }

  std::size_t in_use(int index) { return static_cast<std::size_t>(books_of(index).allocated_bytes.front().current); }

  std::size_t total_of(int index) const {
    const std::size_t limit = limits_.at(static_cast<std::size_t>(index));
    return limit == 0 ? kBytesOfADevice : limit;
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, Block> blocks_;
  std::map<std::pair<StreamName, std::size_t>, std::vector<void*>> free_;
  std::array<Books, 8> books_;
  std::array<std::size_t, 8> limits_ = {};
};

DeviceAllocator& devices_memory() {
  static auto* const allocator = new DeviceAllocator();  // tensors outlive static objects
  return *allocator;
}

void DeviceAllocator::give_back(void* block) {
  if (block != nullptr) devices_memory().release(block);
}

// Given back to the host at once, where CUDA's waits for the copies that use a block, by events.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t count) override {
    const std::size_t bytes = rounded(std::max<std::size_t>(count, 1));
    void* block = from_host(bytes);
    const std::lock_guard lock(mutex_);
    blocks_[reinterpret_cast<std::uintptr_t>(block)] = {bytes};
    return {block, block, &give_back, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }
  bool record_event(void* block, void* context, c10::Stream stream) override { return holds(block); }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  bool holds(const void* data) {
    const std::lock_guard lock(mutex_);
    return holding(blocks_, data) != nullptr || holding(registered_, data) != nullptr;
  }

  void register_memory(const void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    registered_[reinterpret_cast<std::uintptr_t>(data)] = {bytes};
  }

 private:
  struct Block {
    std::size_t bytes = 0;
  };

  static void give_back(void* block);

  void release(void* data) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(data));
      if (recording()) log({.kind = Kind::host_forget, .writes = {range_of(data, found->second.bytes)}});
      blocks_.erase(found);
    }
    std::free(data);
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, Block> blocks_;
  std::map<std::uintptr_t, Block> registered_;
};

PinnedAllocator& pinned_memory() {
  static auto* const allocator = new PinnedAllocator();
  return *allocator;
}

void PinnedAllocator::give_back(void* block) { pinned_memory().release(block); }

}  // namespace

c10::DeviceAllocator* device_allocator() { return &devices_memory(); }
at::HostAllocator* pinned_allocator() { return &pinned_memory(); }
void pin(const void* memory, std::size_t bytes) { pinned_memory().register_memory(memory, bytes); }
bool is_pinned(const void* data) { return pinned_memory().holds(data); }
std::optional<c10::Device> device_of_pointer(const void* data) { return devices_memory().device_of(data); }
void limit_memory(int index, std::size_t bytes) { devices_memory().limit(index, bytes); }

}  // namespace lockstep::testing::sim
