#include "lockstep/parallel/fused_state.h"

#include <ATen/core/grad_mode.h>

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

state::Layout make_layout(const ModuleView& module, int shards, int arrays, base::Holders holders) {
  return {
      module.trainable_specs(),
      state::specs_of(module.buffers(), false),
      // Where the memory dies with the process, a torn state does, too: one buffer, updated in place.
      {.shards = shards, .optimizer_arrays = arrays, .state_buffers = holders == base::Holders::this_process ? 1 : 2},
      state::specs_of(module.frozen(), false)};
}

// Rounds the copies of a buffer's weights, as the update does.
void write_copies(state::SharedState& state, int buffer) {
  const state::Layout& layout = state.layout();
  for (const state::PlacedParameter& place : layout.parameters()) {
    if (!place.spec.bf16) continue;
    state::TensorSpec copy = place.spec;
    copy.dtype = at::kBFloat16;
    state::view_of(copy, state.write(layout.bf16_copies(buffer) + place.offset * sizeof(at::BFloat16)))
        .copy_(state::view_of(place.spec, state.write(layout.weights(buffer) + place.offset * sizeof(float))));
  }
}

void fill(const ModuleView& module, state::SharedState& fresh) {
  const at::NoGradGuard no_grad;
  const state::Layout& layout = fresh.layout();
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
    const state::PlacedParameter& place = layout.parameters()[i];
    state::view_of(place.spec, fresh.write(layout.weights(0) + place.offset * sizeof(float)))
        .copy_(module.trainable()[i].second);
  }
  write_copies(fresh, 0);
  for (std::size_t i = 0; i < layout.frozen().size(); ++i) {
    const state::PlacedBuffer& place = layout.frozen()[i];
    state::view_of(place.spec, fresh.write(layout.frozen_area(0) + place.offset)).copy_(module.frozen()[i].second);
  }
  fresh.set_frozen_area(0, 0);
  ModuleBuffers(tensors_of(module.buffers()), layout).store(fresh.write(layout.module_buffers(0)));
}

}  // namespace

FusedState::FusedState(const ModuleView& module, comm::Group& group, const DataParallelOptions& options,
                       int optimizer_arrays, GradientHooks::Callback on_gradient)
    : state(group.node(), make_layout(module, options.shards, optimizer_arrays, group.node().segment.holders()),
            [&](state::SharedState& fresh) { fill(module, fresh); }),
      guard(state.read(0), state.layout()),
      buffers(tensors_of(module.buffers()), state.layout()),
      slots(state, shards_of(group.rank(), group.size(), options.shards)),
      session(state, buffers, shards_of(group.rank(), group.size(), options.shards), options.seed),
      parameters(tensors_of(module.trainable()), state::parameter_places(state.layout()), state.memory(),
                 committed_weights()),
      frozen(tensors_of(module.frozen()), state::frozen_places(state.layout()), state.memory(), committed_frozen()),
      hooks(parameters.tensors(), std::move(on_gradient)) {
  for (const state::Part& part : state.layout().parts())
    for (int shard = 0; shard < options.shards; ++shard)
      gradients[part.range.begin].push_back(state.read(state.layout().gradients(shard) + part.offset));
}

const std::byte* FusedState::committed_weights() const {
  return state.read(state.layout().weights(int(state.committed().buffer)));
}

const std::byte* FusedState::committed_frozen() const {
  return state.read(state.layout().frozen_area(state.frozen_area(int(state.committed().buffer))));
}

void FusedState::check_bound() const {
  for (const state::Binding* binding : {&parameters, &frozen})
    if (const std::string* name = binding->replaced())
      throw Error("parameter '" + *name +
                  "' was given other memory (by set_data() or torch::load), but the weights are shared by all ranks; "
                  "do it inside ddp.modify(fn), which takes the new values over");
}

void FusedState::flip() {
  parameters.point_to(committed_weights());
  if (frozen.buffer() != committed_frozen()) frozen.point_to(committed_frozen());
  session.restart();
  slots.clear();
}

void FusedState::edit(const std::function<void()>& fn) {
  const at::NoGradGuard no_grad;
  const state::Layout& layout = state.layout();
  const int from = int(state.committed().buffer);
  const int to = state.target();
  const int frozen_from = state.frozen_area(from);
  const int frozen_to = base::next_buffer(frozen_from, layout.options().state_buffers);
  if (to != from) {
    std::memcpy(state.write(layout.weights(to)), state.read(layout.weights(from)), layout.buffer_bytes());
    std::memcpy(state.write(layout.frozen_area(frozen_to)), state.read(layout.frozen_area(frozen_from)),
                layout.frozen_bytes());
  }
  parameters.show_masters(true);  // before they can be written: what shares the copies' storage stays read-only
  parameters.point_to(state.write(layout.weights(to)));
  frozen.point_to(state.write(layout.frozen_area(frozen_to)));
  try {
    fn();
    parameters.take_over();
    frozen.take_over();
    buffers.store(state.write(layout.module_buffers(to)));
  } catch (...) {
    end_edit();
    session.restart();
    throw;
  }
  write_copies(state, to);
  state.set_frozen_area(to, frozen_to);
  state.recommit(to);
  end_edit();
}

// Back to memory that nobody can write to, before whatever fn() kept of the parameters loses its binding.
void FusedState::end_edit() {
  parameters.restore();
  frozen.restore();
  parameters.point_to(committed_weights());
  frozen.point_to(committed_frozen());
  parameters.show_masters(false);
  hooks.renew();
}

}  // namespace lockstep::parallel
