#include "lockstep/checkpoint/contents.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <cstddef>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/safetensors_header.h"
#include "lockstep/state/shared_state.h"
#include "lockstep/state/step_record.h"

namespace lockstep::checkpoint {
namespace {

using state::Layout;

// Where the engine's tensors lie in a state buffer.
class Places {
 public:
  Places(const parallel::Engine& engine, const state::SharedState& state)
      : layout_(state.layout()),
        region_(state.read(0)),
        buffer_(int(state.committed().buffer)),
        tensors_(engine.state_dict()) {
    frozen_ = region_ + layout_.frozen_area(state.frozen_area(buffer_));
    // The module's buffers are tensors of this rank; what is committed of them lies in the region.
    for (const state::PlacedBuffer& place : layout_.buffers())
      committed_.emplace(tensors_.at(place.spec.name).unsafeGetTensorImpl(),
                         layout_.module_buffers(buffer_) + place.offset);
  }

  std::uint64_t in_buffer(std::size_t offset) const { return offset - layout_.weights(buffer_); }

  std::vector<PlacedTensor> all(const std::map<std::string, at::Tensor>& tensors) const {
    std::vector<PlacedTensor> found;
    for (const auto& [name, tensor] : tensors) {
      const TensorBytes bytes = bytes_of(name, tensor);
      PlacedTensor& place = found.emplace_back(PlacedTensor{name, bytes.dtype, bytes.sizes, bytes.strides});
      if (tensor.numel() == 0) continue;  // its address says nothing
      const auto committed = committed_.find(tensor.unsafeGetTensorImpl());
      place.frozen = committed == committed_.end() && is_frozen(bytes.data);
      place.offset = place.frozen                    ? std::uint64_t(bytes.data - frozen_)
                     : committed != committed_.end() ? in_buffer(committed->second)
                                                     : in_buffer(std::size_t(bytes.data - region_));
    }
    return found;
  }

 private:
  bool is_frozen(const std::byte* data) const { return data >= frozen_ && data < frozen_ + layout_.frozen_bytes(); }

  const Layout& layout_;
  const std::byte* region_;
  const std::byte* frozen_;
  int buffer_;
  const std::map<std::string, at::Tensor> tensors_;  // whose addresses are in committed_
  std::unordered_map<const at::TensorImpl*, std::size_t> committed_;
};

PlacedSet optimizer_of(const Layout& layout) {
  PlacedSet set{.file = kOptimizerName, .tensors = {}};
  for (const state::PlacedParameter& place : layout.parameters())
    for (int array = 0; array < layout.options().optimizer_arrays; ++array)
      set.tensors.push_back({place.spec.name + "/" + std::to_string(array), "F32", place.spec.sizes, place.spec.strides,
                             /*frozen=*/false, layout.optimizer_array(0, array) + place.offset * sizeof(float)});
  return set;
}

// The same of arrays that were gathered.
TensorSet optimizer_of(const Layout& layout, const state::WholeArrays& arrays) {
  TensorSet set{.file = kOptimizerName, .tensors = {}};
  for (const state::PlacedParameter& place : layout.parameters())
    for (std::size_t array = 0; array < arrays.size(); ++array)
      set.tensors.push_back({place.spec.name + "/" + std::to_string(array), "F32", place.spec.sizes, place.spec.strides,
                             reinterpret_cast<const std::byte*>(arrays[array].data() + place.offset)});
  return set;
}

SavedState constant_of(const parallel::Engine& engine, const state::LayoutOptions& options) {
  return {.seed = engine.options().seed,
          .shards = options.shards,
          .threads = at::get_num_threads(),
          .optimizer = options.optimizer,
          .optimizer_arrays = options.optimizer_arrays,
          .average = options.average,
          .versions = versions()};
}

}  // namespace

StatePlan plan_of(parallel::Engine& engine, const SaveOptions& options) {
  const state::SharedState& shared = *engine.state().shared();
  const Layout& layout = shared.layout();
  const Places places(engine, shared);
  const std::size_t record = layout.step_record(0);
  StatePlan plan{.folder = "",
                 .retention = options.retention,
                 .region = shared.region(),
                 .constant = constant_of(engine, layout.options()),
                 .buffer_bytes = layout.buffer_bytes(),
                 .frozen_areas = layout.frozen_area(0),
                 .frozen_bytes = layout.frozen_bytes(),
                 .frozen_number = layout.frozen_number(0),
                 .loss = record + offsetof(state::StepRecord, loss),
                 .gradient_norm = record + offsetof(state::StepRecord, gradient_norm),
                 .samples = record + offsetof(state::StepRecord, samples),
                 .skipped = record + offsetof(state::StepRecord, skipped),
                 .counts = layout.step_counts(0),
                 .parameters = {},
                 .kept = {},
                 .place = options.place,
                 .files = {}};
  plan.constant.extra = options.extra;
  plan.constant.metric = options.metric;
  for (const state::PlacedParameter& place : layout.parameters()) plan.parameters.push_back(place.spec.name);
  for (std::size_t i = 0; i < layout.options().bytes.size(); ++i) {
    const state::NamedBytes& bytes = layout.options().bytes[i];
    plan.kept.push_back({bytes.name, layout.named_bytes(0, i), bytes.size});
  }
  plan.files.push_back({kModelName, places.all(engine.state_dict())});
  if (layout.options().shares == 1) plan.files.push_back(optimizer_of(layout));
  if (layout.options().average) plan.files.push_back({kAverageName, places.all(engine.ema().state_dict())});
  return plan;
}

Contents contents_of(parallel::Engine& engine, const std::byte* region, const SaveOptions& options,
                     const state::WholeArrays& arrays) {
  const state::SharedState& shared = *engine.state().shared();
  const Layout& layout = shared.layout();
  Contents contents = contents_at(plan_of(engine, options), {region, layout.total_bytes()}, shared.committed());
  // Where it stands in the plan of a state that is all here.
  if (layout.options().shares > 1) contents.files.insert(contents.files.begin() + 1, optimizer_of(layout, arrays));
  return contents;
}

void check_place(parallel::Engine& engine, const SaveOptions& options) {
  std::map<std::string, std::size_t> sizes;
  for (const auto& [name, memory] : engine.state().kept()) sizes.emplace(name, memory.size());
  check_numbers(options.place, sizes);
}

TensorBytes bytes_of(const std::string& name, const at::Tensor& tensor) {
  const char* const dtype = dtype_name(tensor.scalar_type());
  if (dtype == nullptr)
    throw UsageError("checkpoint: '" + name + "' is " + c10::toString(tensor.scalar_type()) +
                     ", which safetensors does not know");
  return {name, dtype, tensor.sizes().vec(), tensor.strides().vec(),
          static_cast<const std::byte*>(tensor.const_data_ptr())};
}

std::vector<TensorBytes> bytes_of(const std::map<std::string, at::Tensor>& tensors) {
  std::vector<TensorBytes> found;
  for (const auto& [name, tensor] : tensors) found.push_back(bytes_of(name, tensor));
  return found;
}

std::map<std::string, std::string> versions() { return {{"lockstep", LOCKSTEP_VERSION}, {"libtorch", TORCH_VERSION}}; }

}  // namespace lockstep::checkpoint
