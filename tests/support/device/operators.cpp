// What the CPU's kernels cannot do for the device: make tensors, copy between host and device, tell the host a value,
// and operators whose CPU form goes by another name.

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <map>
#include <mutex>

#include "tests/support/device/runtime.h"
#include "tests/support/device/sim_device.h"

namespace lockstep::testing::sim {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device chosen(std::optional<c10::Device> device) {
  return device && device->has_index() ? *device : c10::Device(kSim, current_device());
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> memory_format) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::DeviceGuard guard(chosen(device));
  return at::detail::empty_generic(size, device_allocator(), kKeys, c10::dtype_or_default(dtype), memory_format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::DeviceGuard guard(chosen(device));
  return at::detail::empty_strided_generic(size, stride, device_allocator(), kKeys, c10::dtype_or_default(dtype));
}

bool on_device(const at::Tensor& tensor) { return tensor.device().type() == kSim; }

// Orders `later` behind all that `earlier` has to do now, as copies between two devices do.
void order(const c10::Stream& earlier, const c10::Stream& later) {
  const c10::impl::VirtualGuardImpl guard(kSim);
  void* event = nullptr;
  guard.record(&event, earlier, earlier.device_index(), c10::EventFlag::PYTORCH_DEFAULT);
  guard.block(event, later);
  guard.destroyEvent(event, earlier.device_index());
}

// A copy as the log has it. CUDA brings what has another type or other strides into a temporary first, which on the
// host's side is not pinned.
Entry entry_of(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Entry entry;
  if (on_device(from) && on_device(to)) {
    entry.stream = name_of(current_stream(from.device().index()));
    entry.name = "copy on the device";
  } else if (on_device(to)) {
    const bool as_it_is = from.scalar_type() == to.scalar_type() && from.strides() == to.strides();
    const bool asynchronous = non_blocking && as_it_is && is_pinned(from.const_data_ptr());
    entry.stream = name_of(current_stream(to.device().index()));
    entry.name =
        asynchronous || !non_blocking ? "copy to the device" : "copy to the device from memory that is not pinned";
    entry.blocking = !non_blocking;
    entry.staged = non_blocking && !asynchronous;
  } else {
    const bool pinned = is_pinned(to.const_data_ptr());
    entry.stream = name_of(current_stream(from.device().index()));
    entry.name = pinned || !non_blocking ? "copy to the host" : "copy to memory of the host that is not pinned";
    entry.blocking = !non_blocking || !pinned;
  }
  if (!entry.staged) add_ranges(from, entry.reads);
  add_ranges(to, entry.writes);
  return entry;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  TORCH_CHECK(from.defined() && to.defined(), "sim: a copy needs two tensors");
  const bool two_devices = on_device(from) && on_device(to) && from.device() != to.device();
  if (recording() && two_devices) order(current_stream(to.device().index()), current_stream(from.device().index()));
  if (recording() && to.numel() > 0) log(entry_of(from, to, non_blocking));
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    (on_device(to) ? on_host(to) : to).copy_(on_device(from) ? on_host(from) : from);
  }
  if (recording() && two_devices) order(current_stream(from.device().index()), current_stream(to.device().index()));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

const c10::OperatorHandle& operator_of(const char* name) {
  static std::mutex mutex;
  static auto* const known = new std::map<std::string, c10::OperatorHandle>();
  const std::lock_guard lock(mutex);
  auto found = known->find(name);
  if (found == known->end())
    found = known->emplace(name, c10::Dispatcher::singleton().findSchemaOrThrow(name, "")).first;
  return found->second;
}

// What libtorch calls for a convolution on a device that is not its own: the CPU's choice among its kernels.
void convolution(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_on_host(operator_of("aten::convolution"), stack);
}

// (grad_output, input, weight, | bias_sizes, | stride, padding, dilation, transposed, output_padding, groups, mask).
void convolution_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t first = stack->size() - op.schema().arguments().size();
  const std::vector<std::int64_t> bias_sizes = {(*stack)[first].toTensor().size(1)};
  const bool with_bias = stack->back().toBoolList().get(2);
  stack->insert(stack->begin() + static_cast<std::ptrdiff_t>(first) + 3,
                with_bias ? c10::IValue(bias_sizes) : c10::IValue());
  run_on_host(operator_of("aten::convolution_backward"), stack);
}

// The CPU's takes the CPU's own generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, at::kBool)};
  at::Tensor mask = at::empty_like(input, at::kBool).bernoulli_(1 - p);
  at::Tensor output = at::mul(input, mask).mul_(p == 1 ? 0.0 : 1 / (1 - p));
  return {output, mask};
}

void record_stream_of(at::Tensor& tensor, c10::Stream stream) {
  c10::impl::VirtualGuardImpl(kSim).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

// Module::to() puts a tensor of one device in another's place, as it does between CPU and CUDA.
bool has_compatible_type(const at::Tensor& self, const at::Tensor& from) {
  return self.layout() == c10::kStrided && from.layout() == c10::kStrided;
}

}  // namespace

void register_operators() {
  const auto key = c10::DispatchKey::PrivateUse1;
  static auto* const all = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  all->fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  static auto* const own = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  own->impl("empty.memory_format", TORCH_FN(empty));
  own->impl("empty_strided", TORCH_FN(empty_strided));
  own->impl("_copy_from", TORCH_FN(copy_from));
  own->impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  own->impl("native_dropout", TORCH_FN(native_dropout));
  own->impl("record_stream", TORCH_FN(record_stream_of));
  own->impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_type));
  own->impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  own->impl("convolution_backward_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
  // The CPU has kernels for these; a device would get forms put together from other operators.
  for (const char* name : {"native_layer_norm", "native_group_norm"}) {
    own->impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  }
}

}  // namespace lockstep::testing::sim
