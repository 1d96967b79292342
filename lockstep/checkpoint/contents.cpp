#include "lockstep/checkpoint/contents.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/safetensors_header.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::checkpoint {
namespace {

using state::Layout;

// Where the tensors of a state are, as another mapping of its region has them.
class Region {
 public:
  Region(const parallel::Engine& engine, const state::SharedState& state, const std::byte* region)
      : layout_(state.layout()), mapped_(state.read(0)), region_(region), buffer_(int(state.committed().buffer)) {
    // The module's buffers are tensors of this rank; what is committed of them lies in the region.
    const auto tensors = engine.state_dict();
    for (const state::PlacedBuffer& place : layout_.buffers())
      committed_.emplace(tensors.at(place.spec.name).unsafeGetTensorImpl(),
                         region_ + layout_.module_buffers(buffer_) + place.offset);
  }

  const std::byte* at(std::size_t offset) const { return region_ + offset; }
  int buffer() const { return buffer_; }

  std::vector<TensorBytes> all(const std::map<std::string, at::Tensor>& tensors) const {
    std::vector<TensorBytes> found;
    for (const auto& [name, tensor] : tensors) {
      TensorBytes& bytes = found.emplace_back(bytes_of(name, tensor));
      const auto committed = committed_.find(tensor.unsafeGetTensorImpl());
      bytes.data = committed != committed_.end() ? committed->second : region_ + (bytes.data - mapped_);
    }
    return found;
  }

 private:
  const Layout& layout_;
  const std::byte* mapped_;
  const std::byte* region_;
  int buffer_;
  std::unordered_map<const at::TensorImpl*, const std::byte*> committed_;
};

TensorSet optimizer_of(const Layout& layout, const Region& region) {
  TensorSet set{.file = kOptimizerName};
  for (const state::PlacedParameter& place : layout.parameters())
    for (int array = 0; array < layout.options().optimizer_arrays; ++array)
      set.tensors.push_back({place.spec.name + "/" + std::to_string(array), "F32", place.spec.sizes, place.spec.strides,
                             region.at(layout.optimizer_array(region.buffer(), array) + place.offset * sizeof(float))});
  return set;
}

SavedState state_of(const parallel::Engine& engine, const Layout& layout, const Region& region) {
  const int buffer = region.buffer();
  const auto& record = *reinterpret_cast<const state::StepRecord*>(region.at(layout.step_record(buffer)));
  const auto* const counts = reinterpret_cast<const std::uint64_t*>(region.at(layout.step_counts(buffer)));
  const state::LayoutOptions& options = layout.options();
  SavedState saved{.step = engine.steps(),
                   .loss = record.loss,
                   .gradient_norm = record.gradient_norm,
                   .samples = record.samples,
                   .skipped = record.skipped,
                   .seed = engine.options().seed,
                   .shards = options.shards,
                   .threads = at::get_num_threads(),
                   .optimizer = options.optimizer,
                   .optimizer_arrays = options.optimizer_arrays,
                   .average = options.average,
                   .versions = versions()};
  for (std::size_t i = 0; i < layout.parameters().size(); ++i)
    saved.updates.emplace(layout.parameters()[i].spec.name, counts[i]);
  for (std::size_t i = 0; i < options.bytes.size(); ++i) {
    const auto* const bytes = reinterpret_cast<const char*>(region.at(layout.named_bytes(buffer, i)));
    saved.kept.emplace(options.bytes[i].name, std::string(bytes, options.bytes[i].size));
  }
  return saved;
}

}  // namespace

Contents contents_of(parallel::Engine& engine, const std::byte* mapped, const SaveOptions& options) {
  const state::SharedState& shared = *engine.state().shared();
  const Layout& layout = shared.layout();
  const Region region(engine, shared, mapped);
  Contents contents{.state = state_of(engine, layout, region)};
  contents.state.extra = options.extra;
  contents.state.metric = options.metric;
  contents.files.push_back({kModelName, region.all(engine.state_dict())});
  contents.files.push_back(optimizer_of(layout, region));
  if (layout.options().average) contents.files.push_back({kAverageName, region.all(engine.ema().state_dict())});
  return contents;
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
