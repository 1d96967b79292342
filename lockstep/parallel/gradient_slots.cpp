#include "lockstep/parallel/gradient_slots.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>

#include "lockstep/state/binding.h"

namespace lockstep::parallel {

GradientSlots::GradientSlots(const state::SharedState& state, ShardSpan shards)
    : layout_(state.layout()), first_(shards.first), slots_(std::size_t(shards.count())) {
  for (int shard = shards.first; shard < shards.last; ++shard)
    for (std::size_t i = 0; i < layout_.parameters().size(); ++i) {
      state::TensorSpec spec = layout_.parameters()[i].spec;
      spec.dtype = layout_.gradient_type(i);
      slots_[std::size_t(shard - first_)].push_back({state::view_of(spec, state.write(layout_.gradient(shard, i)))});
    }
}

void GradientSlots::put(int shard, std::size_t parameter, const at::Tensor& gradient) {
  const state::TensorSpec& spec = layout_.parameters()[parameter].spec;
  if (gradient.layout() != at::kStrided) throw Error(spec.name + ": sparse gradients are not supported");
  const at::NoGradGuard no_grad;  // a slot must not become part of a graph
  Slot& to = slots_[std::size_t(shard - first_)][parameter];
  if (to.written) {
    to.tensor.add_(gradient);
  } else if (gradient.scalar_type() == to.tensor.scalar_type() && gradient.strides() == to.tensor.strides() &&
             gradient.sizes() == to.tensor.sizes()) {
    // The usual case, without the dispatcher.
    if (gradient.nbytes() > 0) std::memcpy(to.tensor.mutable_data_ptr(), gradient.const_data_ptr(), gradient.nbytes());
  } else {
    to.tensor.copy_(gradient);
  }
  to.written = true;
}

void GradientSlots::check_complete() const {
  for (std::size_t local = 0; local < slots_.size(); ++local)
    for (std::size_t parameter = 0; parameter < slots_[local].size(); ++parameter)
      if (!slots_[local][parameter].written)
        throw Error("step: parameter '" + layout_.parameters()[parameter].spec.name + "' got no gradient in shard " +
                    std::to_string(first_ + int(local)) +
                    "; every parameter must take part in the loss (set requires_grad to false for those that do not)");
}

bool GradientSlots::empty() const {
  const auto unwritten = [](const Slot& slot) { return !slot.written; };
  return std::all_of(slots_.begin(), slots_.end(),
                     [&](const auto& shard) { return std::all_of(shard.begin(), shard.end(), unwritten); });
}

void GradientSlots::clear() {
  for (auto& shard : slots_)
    for (Slot& slot : shard) slot.written = false;
}

}  // namespace lockstep::parallel
