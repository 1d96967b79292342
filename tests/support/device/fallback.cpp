// All operators: the CPU's kernels over the devices' memory.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "tests/support/device/runtime.h"
#include "tests/support/device/sim_device.h"

namespace lockstep::testing::sim {
namespace {

// Annotated as if they wrote, but they only change what a tensor says of its memory.
constexpr std::array<std::string_view, 11> kNoData = {
    "aten::as_strided_", "aten::resize_", "aten::resize_as_", "aten::set_",      "aten::squeeze_", "aten::unsqueeze_",
    "aten::t_",          "aten::detach_", "aten::transpose_", "aten::swapaxes_", "aten::swapdims_"};
// The shape of what they return depends on the data: a real device has to be asked.
constexpr std::array<std::string_view, 8> kAsksTheDevice = {
    "aten::nonzero",    "aten::masked_select",      "aten::_unique2", "aten::_unique",
    "aten::unique_dim", "aten::unique_consecutive", "aten::bincount", "aten::repeat_interleave"};
// Waits for the copy of an index from the host, or to know how many a mask has chosen. To read by an index is put
// together from operators that are recorded.
constexpr std::string_view kIndexPut = "aten::_index_put_impl_";
// Where an index may lie on the host.
constexpr std::array<std::string_view, 4> kHostIndices = {"aten::index", "aten::_unsafe_index", "aten::index_put_",
                                                          "aten::_index_put_impl_"};
// They write running averages that their schema does not tell of: arguments 3 and 4.
constexpr std::array<std::string_view, 2> kRunningAverages = {"aten::native_batch_norm",
                                                              "aten::batch_norm_update_stats"};

template <class Names>
bool is_one_of(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// One call of an operator: its arguments as CPU tensors over the same memory, and what comes back as the device's.
class HostCall {
 public:
  HostCall(const c10::FunctionSchema& schema, torch::jit::Stack& stack)
      : schema_(schema), stack_(stack), first_(stack.size() - schema.arguments().size()) {
    find_device();
  }

  c10::Device device() const { return device_; }

  void take_arguments() {
    for (std::size_t i = 0; i < schema_.arguments().size(); ++i) {
      const c10::Argument& argument = schema_.arguments()[i];
      c10::IValue& value = stack_[first_ + i];
      const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
      views_ = views_ || (argument.alias_info() != nullptr && !writes);
      if (value.isTensor()) {
        value = on_host(value.toTensor(), writes || (i >= 3 && i <= 4 && is_one_of(kRunningAverages, schema_.name())));
      } else if (value.isTensorList()) {
        std::vector<at::Tensor> tensors = value.toTensorVector();
        for (at::Tensor& tensor : tensors) tensor = on_host(tensor, writes);
        value = c10::IValue(c10::List<at::Tensor>(tensors));
      } else if (value.isOptionalTensorList()) {
        auto tensors = value.toOptionalTensorList().copy();
        for (std::size_t t = 0; t < tensors.size(); ++t) {
          const std::optional<at::Tensor> tensor = tensors.get(t);
          if (tensor) tensors.set(t, on_host(*tensor, writes));
        }
        value = c10::IValue(tensors);
      } else if (value.isStorage()) {
        value = c10::IValue(storage_on_host(value.toStorage()));
      } else if (value.isDevice()) {
        value = c10::IValue(c10::Device(c10::DeviceType::CPU));
      } else {
        take_generator(argument, value);
      }
    }
  }

  // Takes what the kernel left on the stack, and what it did to its arguments.
  void give_results() {
    for (Memory& memory : memories_) follow_resize(memory);
    for (const Passed& passed : passed_) {
      if (passed.writes) follow_shape(passed);
    }
    const std::size_t results = schema_.returns().size();
    for (std::size_t i = stack_.size() - results; i < stack_.size(); ++i) {
      c10::IValue& value = stack_[i];
      if (value.isTensor()) {
        value = on_device(value.toTensor());
      } else if (value.isTensorList()) {
        std::vector<at::Tensor> tensors = value.toTensorVector();
        for (at::Tensor& tensor : tensors) tensor = on_device(tensor);
        value = c10::IValue(c10::List<at::Tensor>(tensors));
      } else if (!value.isNone()) {
        answers_host_ = !passed_.empty();
      }
    }
  }

  void record(std::vector<Range> reads) const {
    if (views_ || is_one_of(kNoData, schema_.name())) return;
    Entry entry = {.stream = name_of(current_stream(device_.index())),
                   .name = schema_.name(),
                   .reads = std::move(reads),
                   .blocking = answers_host_ || is_one_of(kAsksTheDevice, schema_.name()) || index_waits_};
    for (const Passed& passed : passed_) {
      if (passed.writes) add_ranges(passed.device, entry.writes);
    }
    for (const at::Tensor& tensor : made_) add_ranges(tensor, entry.writes);
    if (!entry.reads.empty() || !entry.writes.empty()) log(std::move(entry));
  }

  std::vector<Range> reads() const {
    std::vector<Range> ranges;
    for (const Passed& passed : passed_) {
      if (!passed.writes) add_ranges(passed.device, ranges);
    }
    return ranges;
  }

 private:
  struct Memory {
    c10::Storage device;
    c10::Storage host;
    const void* before = nullptr;
  };
  struct Passed {
    at::Tensor device;
    at::Tensor host;
    bool writes = false;
  };

  // The device of the first tensor, else the one that is asked for.
  void find_device() {
    std::optional<c10::Device> found;
    for (std::size_t i = first_; i < stack_.size(); ++i) {
      const c10::IValue& value = stack_[i];
      if (value.isTensor()) {
        look_at(value.toTensor(), found);
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) look_at(tensor, found);
      } else if (value.isOptionalTensorList()) {
        for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
          if (tensor) look_at(*tensor, found);
        }
      }
    }
    for (std::size_t i = first_; i < stack_.size() && !found; ++i) {
      if (stack_[i].isDevice() && stack_[i].toDevice().type() == kSim) found = stack_[i].toDevice();
    }
    device_ = found && found->has_index() ? *found : c10::Device(kSim, current_device());
  }

  void look_at(const at::Tensor& tensor, std::optional<c10::Device>& found) const {
    if (!tensor.defined() || tensor.device().type() != kSim) return;
    if (!found) found = tensor.device();
    TORCH_CHECK(*found == tensor.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", *found, " and ",
                tensor.device(), "! (", schema_.name(), ")");
  }

  void take_generator(const c10::Argument& argument, c10::IValue& value) const {
    if (value.isGenerator()) {
      value = c10::IValue(cpu_engine(value.toGenerator()));
    } else if (value.isNone() && argument.type()->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()))) {
      value = c10::IValue(cpu_engine(default_generator(device_.index())));
    }
  }

  at::Tensor on_host(const at::Tensor& tensor, bool writes) {
    if (!tensor.defined()) return tensor;
    if (tensor.device().type() != kSim) {
      TORCH_CHECK(tensor.dim() == 0 || is_one_of(kHostIndices, schema_.name()),
                  "Expected all tensors to be on the same device, but found ", "at least two devices, ", device_,
                  " and ", tensor.device(), "! (", schema_.name(), ")");
      index_waits_ = index_waits_ || (tensor.dim() > 0 && schema_.name() == kIndexPut);
      return tensor;
    }
    for (Passed& passed : passed_) {
      if (passed.device.is_same(tensor)) {
        passed.writes = passed.writes || writes;
        return passed.host;
      }
    }
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided, "sim: ", schema_.name(), " of a ", tensor.layout(),
                                " tensor");
    index_waits_ = index_waits_ || (schema_.name() == kIndexPut && !passed_.empty() &&
                                    (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte));
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    at::Tensor host = at::detail::make_tensor<c10::TensorImpl>(
        storage_on_host(tensor.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
    host.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    if (impl.is_wrapped_number()) host.unsafeGetTensorImpl()->set_wrapped_number(true);
    passed_.push_back({tensor, host, writes});
    return host;
  }

  c10::Storage storage_on_host(const c10::Storage& storage) {
    for (const Memory& memory : memories_) {
      if (memory.device.is_alias_of(storage)) return memory.host;
    }
    void* const bytes = storage.mutable_data();
    memories_.push_back(
        {storage,
         c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(),
                      c10::DataPtr(bytes, c10::Device(c10::DeviceType::CPU)), c10::GetCPUAllocator(), true),
         bytes});
    return memories_.back().host;
  }

  // The kernel has given the storage other memory: so does the device.
  void follow_resize(Memory& memory) {
    if (memory.host.data() == memory.before && memory.host.nbytes() == memory.device.nbytes()) return;
    c10::StorageImpl& storage = *memory.device.unsafeGetStorageImpl();
    c10::DataPtr block = device_allocator()->allocate(memory.host.nbytes());
    if (block.get() != nullptr) std::memcpy(block.get(), memory.host.data(), memory.host.nbytes());
    storage.set_data_ptr_noswap(std::move(block));
    storage.set_nbytes(memory.host.nbytes());
  }

  void follow_shape(const Passed& passed) {
    c10::TensorImpl& device = *passed.device.unsafeGetTensorImpl();
    const c10::TensorImpl& host = *passed.host.unsafeGetTensorImpl();
    const c10::Storage storage = storage_on_device(host.storage());
    if (!device.storage().is_alias_of(storage)) device.set_storage_keep_dtype(storage);
    if (device.sizes() != host.sizes() || device.strides() != host.strides() ||
        device.storage_offset() != host.storage_offset()) {
      device.set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
    }
  }

  at::Tensor on_device(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    for (const Passed& passed : passed_) {
      if (passed.host.is_same(tensor)) return passed.device;
    }
    at::Tensor device = at::detail::make_tensor<c10::TensorImpl>(
        storage_on_device(tensor.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), tensor.dtype());
    c10::TensorImpl& impl = *device.unsafeGetTensorImpl();
    impl.set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl.set_wrapped_number(true);
    made_.push_back(device);
    return device;
  }

  // An argument's storage, or memory of the device with what the kernel has put into its own.
  c10::Storage storage_on_device(const c10::Storage& storage) {
    for (const Memory& memory : memories_) {
      if (memory.host.is_alias_of(storage)) return memory.device;
    }
    c10::DataPtr block = device_allocator()->allocate(storage.nbytes());
    if (block.get() != nullptr) std::memcpy(block.get(), storage.data(), storage.nbytes());
    memories_.push_back(
        {c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(block), device_allocator(), true),
         storage, storage.data()});
    return memories_.back().device;
  }

  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  std::size_t first_;
  c10::Device device_ = c10::Device(kSim, 0);
  std::vector<Memory> memories_;
  std::vector<Passed> passed_;
  std::vector<at::Tensor> made_;
  bool views_ = false;
  bool answers_host_ = false;
  bool index_waits_ = false;
};

}  // namespace

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  HostCall call(op.schema(), *stack);
  const c10::DeviceGuard guard(call.device());
  call.take_arguments();
  std::vector<Range> reads;
  if (recording()) reads = call.reads();
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  call.give_results();
  if (recording()) call.record(std::move(reads));
}

void resize_storage(c10::StorageImpl& storage, std::size_t bytes) {
  const c10::DeviceGuard guard(storage.device());
  c10::DataPtr block = device_allocator()->allocate(bytes);
  const std::size_t kept = std::min(bytes, storage.nbytes());
  if (kept > 0) std::memcpy(block.get(), storage.data(), kept);
  storage.set_data_ptr_noswap(std::move(block));
  storage.set_nbytes(bytes);
}

at::Tensor on_host(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.device().type() == kSim, "sim::on_host: a tensor of ", tensor.device());
  const c10::Storage& owner = tensor.storage();
  auto* const held = new c10::Storage(owner);
  at::DataPtr shared = {owner.mutable_data(), held, [](void* storage) { delete static_cast<c10::Storage*>(storage); },
                        c10::Device(c10::DeviceType::CPU)};
  at::Tensor host = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), owner.nbytes(), std::move(shared)),
      c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  host.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return host;
}

}  // namespace lockstep::testing::sim
