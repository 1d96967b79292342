// The device guard (devices, streams, events), the accelerator's hooks and generators.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <stdexcept>

#include "tests/support/device/runtime.h"
#include "tests/support/device/sim_device.h"

namespace lockstep::testing::sim {
namespace {

constexpr c10::StreamId kPool = 8;

// How many Busy began so far; odd while one lives.
std::atomic<std::uint64_t> period = 0;

bool busy() { return period % 2 == 1; }

struct Event {
  std::uint64_t number = 0;
  std::atomic<std::uint64_t> recorded_in = 0;  // the period
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kSim; }
  c10::Device getDevice() const override { return {kSim, current_device()}; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }

  void setDevice(c10::Device device) const override {
    if (device.has_index()) set_current_device(device.index());
  }

  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index() && device.index() < device_count()) set_current_device(device.index());
  }

  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }

  c10::Stream getStream(c10::Device device) const override { return current_stream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(device, 0); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return stream_of(device, 1 + next_of_pool_++ % kPool + (high_priority ? kPool : 0));
  }

  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return stream_of(device, 1 + 2 * kPool + next_new_++);
  }

  // What a library of the device's is given for its stream; it means nothing here.
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(std::uintptr_t(stream.id()));
  }

  bool queryStream(const c10::Stream& stream) const override { return !busy(); }

  void synchronizeStream(const c10::Stream& stream) const override {
    log({.kind = Kind::synchronize_stream, .stream = name_of(stream), .name = "synchronize stream"});
  }

  void synchronizeDevice(c10::DeviceIndex index) const override {
    log({.kind = Kind::synchronize_device, .stream = {index, 0}, .name = "synchronize device"});
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex index, c10::EventFlag flag) const override {
    TORCH_CHECK(index == -1 || index == stream.device_index(), "sim: an event of device ", int{index},
                " is recorded on a stream of device ", int{stream.device_index()});
    if (*event == nullptr) *event = new Event{.number = ++next_event_};
    auto* const recorded = static_cast<Event*>(*event);
    recorded->recorded_in = period.load();
    log({.kind = Kind::record_event, .stream = name_of(stream), .name = "record event", .event = recorded->number});
  }

  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const std::uint64_t number = static_cast<const Event*>(event)->number;
    log({.kind = Kind::wait_event, .stream = name_of(stream), .name = "wait for event", .event = number});
  }

  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    const auto* const asked = static_cast<const Event*>(event);
    if (busy() && asked->recorded_in == period) return false;
    log({.kind = Kind::event_seen, .name = "query event", .event = asked->number});
    return true;
  }

  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    auto* const awaited = static_cast<Event*>(event);
    awaited->recorded_in = 0;
    log({.kind = Kind::synchronize_event, .name = "synchronize event", .event = awaited->number});
  }

  void destroyEvent(void* event, c10::DeviceIndex index) const noexcept override { delete static_cast<Event*>(event); }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get() != nullptr) device_allocator()->recordStream(data, stream);
  }

 private:
  static c10::Stream stream_of(c10::Device device, c10::StreamId id) {
    const c10::DeviceIndex index = device.has_index() ? device.index() : current_device();
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kSim, index), id);
  }

  mutable std::atomic<c10::StreamId> next_of_pool_ = 0;
  mutable std::atomic<c10::StreamId> next_new_ = 0;
  mutable std::atomic<std::uint64_t> next_event_ = 0;
};

// The CPU's generator under the device's name: operators of the device take it, and hand the CPU's to the CPU's
// kernels.
class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex index, at::Generator cpu)
      : GeneratorImpl(c10::Device(kSim, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        cpu_(std::move(cpu)) {}

  const at::Generator& cpu() const { return cpu_; }

  void set_current_seed(std::uint64_t seed) override { cpu_.set_current_seed(seed); }
  void set_offset(std::uint64_t offset) override { cpu_.set_offset(offset); }
  std::uint64_t get_offset() const override { return cpu_.get_offset(); }
  std::uint64_t current_seed() const override { return cpu_.current_seed(); }
  std::uint64_t seed() override { return cpu_.seed(); }
  void set_state(const c10::TensorImpl& state) override { cpu_.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return cpu_.unsafeGetGeneratorImpl()->get_state(); }

 private:
  GeneratorImpl* clone_impl() const override { return new Generator(device_.index(), cpu_.clone()); }

  mutable at::Generator cpu_;
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }

  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex before = current_device();
    set_current_device(index);
    return before;
  }

  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? current_device() : exchangeDevice(index);
  }

  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }

  c10::Device getDeviceFromPtr(void* data) const override {
    const std::optional<c10::Device> device = device_of_pointer(data);
    TORCH_CHECK(device, "sim: no memory of a device");
    return *device;
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

}  // namespace

const at::Generator& default_generator(c10::DeviceIndex index) {
  static const auto* const generators = [] {
    auto* made = new std::vector<at::Generator>();
    for (int i = 0; i < device_count(); ++i) made->push_back(new_generator(static_cast<c10::DeviceIndex>(i)));
    return made;
  }();
  return generators->at(static_cast<std::size_t>(index < 0 ? current_device() : index));
}

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<Generator>(index < 0 ? current_device() : index, at::detail::createCPUGenerator());
}

at::Generator cpu_engine(const at::Generator& generator) {
  if (generator.device().type() != kSim) return generator;
  return static_cast<const Generator*>(generator.unsafeGetGeneratorImpl())->cpu();
}

Busy::Busy() {
  if (busy()) throw std::logic_error("sim::Busy: there is one already");
  ++period;
}

Busy::~Busy() { ++period; }

void register_guard() { c10::impl::registerDeviceGuard(kSim, new Guard()); }
void register_hooks() { at::RegisterPrivateUse1HooksInterface(new Hooks()); }

}  // namespace lockstep::testing::sim
