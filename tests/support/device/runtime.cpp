#include "tests/support/device/runtime.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <mutex>
#include <stdexcept>

#include "tests/support/device/sim_device.h"

namespace lockstep::testing::sim {
namespace {

constexpr int kMostDevices = 8;
constexpr int kMostRanges = 256;

std::atomic<int> installed = 0;
thread_local c10::DeviceIndex current = 0;
thread_local std::array<c10::StreamId, kMostDevices> streams = {};

std::atomic<bool> is_recording = false;
std::mutex log_mutex;
std::vector<Entry> entries;

void refuse_cuda() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libtorch_cuda") != std::string::npos) {
      throw std::logic_error("sim::install: this process has libtorch_cuda; the stand-in takes its place");
    }
  }
}

void host_access(std::vector<Range> reads, std::vector<Range> writes) {
  if (recording()) log({.kind = Kind::host_access, .reads = std::move(reads), .writes = std::move(writes)});
}

}  // namespace

void install(int devices) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (installed == devices) return;
  if (installed != 0) throw std::logic_error("sim::install: another number of devices is installed");
  if (devices < 1 || devices > kMostDevices) throw std::logic_error("sim::install: 1 to 8 devices");
  refuse_cuda();
  c10::register_privateuse1_backend("sim");
  installed = devices;
  c10::SetAllocator(kSim, device_allocator());
  at::setHostAllocator(kSim, pinned_allocator());
  register_guard();
  register_hooks();
  register_operators();
  register_batch_norm();
  register_autocast();
}

at::Device device(int index) { return {kSim, static_cast<c10::DeviceIndex>(index)}; }

int device_count() { return installed; }
c10::DeviceIndex current_device() { return current; }

void set_current_device(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < installed, "sim: no device ", int{index}, "; there are ", installed.load());
  current = index;
}

c10::Stream current_stream(c10::DeviceIndex index) {
  if (index < 0) index = current;
  TORCH_CHECK(index < installed, "sim: no device ", int{index}, "; there are ", installed.load());
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kSim, index), streams.at(static_cast<std::size_t>(index)));
}

c10::Stream exchange_stream(c10::Stream stream) {
  const c10::Stream before = current_stream(stream.device_index());
  streams.at(static_cast<std::size_t>(stream.device_index())) = stream.id();
  return before;
}

StreamName name_of(const c10::Stream& stream) { return {stream.device_index(), stream.id()}; }

bool recording() { return is_recording; }

void log(Entry entry) {
  const std::lock_guard lock(log_mutex);
  if (is_recording) entries.push_back(std::move(entry));
}

void add_ranges(const at::Tensor& tensor, std::vector<Range>& ranges) {
  if (!tensor.defined() || tensor.numel() == 0 || tensor.const_data_ptr() == nullptr) return;
  // Dimensions by stride, the smallest first: those that lie without gaps are one run of bytes.
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // stride, size
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1 && tensor.stride(d) != 0) dimensions.emplace_back(tensor.stride(d), tensor.size(d));
  }
  std::sort(dimensions.begin(), dimensions.end());
  std::int64_t run = 1;
  std::size_t next = 0;
  for (; next < dimensions.size() && dimensions[next].first <= run; ++next) {
    run += dimensions[next].first * (dimensions[next].second - 1);
  }
  std::int64_t runs = 1;
  for (std::size_t d = next; d < dimensions.size(); ++d) runs *= dimensions[d].second;
  if (runs > kMostRanges) {
    for (; next < dimensions.size(); ++next) run += dimensions[next].first * (dimensions[next].second - 1);
  }
  std::vector<std::int64_t> starts = {0};
  for (; next < dimensions.size(); ++next) {
    const std::size_t before = starts.size();
    for (std::int64_t i = 1; i < dimensions[next].second; ++i) {
      for (std::size_t s = 0; s < before; ++s) starts.push_back(starts[s] + i * dimensions[next].first);
    }
  }
  const auto item = static_cast<std::int64_t>(tensor.itemsize());
  const auto* base = static_cast<const char*>(tensor.const_data_ptr());
  for (const std::int64_t start : starts) {
    ranges.push_back(range_of(base + start * item, static_cast<std::size_t>(run * item)));
  }
}

Recording::Recording() {
  const std::lock_guard lock(log_mutex);
  if (is_recording) throw std::logic_error("sim::Recording: there is one already");
  entries.clear();
  is_recording = true;
}

Recording::~Recording() { is_recording = false; }

std::vector<Entry> Recording::history() const {
  const std::lock_guard lock(log_mutex);
  return entries;
}

void Recording::clear() const {
  const std::lock_guard lock(log_mutex);
  entries.clear();
}

void host_reads(const void* bytes, std::size_t count) { host_access({range_of(bytes, count)}, {}); }
void host_writes(const void* bytes, std::size_t count) { host_access({}, {range_of(bytes, count)}); }

void operation(const std::string& name, const std::vector<at::Tensor>& reads, const std::vector<at::Tensor>& writes) {
  if (!recording()) return;
  const at::Tensor& first = writes.empty() ? reads.at(0) : writes.at(0);
  Entry entry = {.stream = name_of(current_stream(first.device().index())), .name = name};
  for (const at::Tensor& tensor : reads) add_ranges(tensor, entry.reads);
  for (const at::Tensor& tensor : writes) add_ranges(tensor, entry.writes);
  log(std::move(entry));
}

}  // namespace lockstep::testing::sim
