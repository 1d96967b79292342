#include "lockstep/parallel/fused_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/parallel/shards.h"
#include "lockstep/state/hash.h"

namespace lockstep::parallel {
namespace {

void set_groups(std::vector<state::TensorSpec>& specs, const optim::Needs& needs) {
  if (needs.group_of.empty()) return;
  if (needs.group_of.size() != specs.size())
    throw UsageError("data parallel: the optimizer gives " + std::to_string(needs.group_of.size()) +
                     " parameters a group, the model trains " + std::to_string(specs.size()));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    specs[i].group = needs.group_of[i];
    if (specs[i].group < 0 || specs[i].group >= needs.groups)
      throw UsageError("data parallel: the optimizer puts parameter '" + specs[i].name + "' into group " +
                       std::to_string(specs[i].group) + "; it has groups 0 to " + std::to_string(needs.groups - 1));
  }
}

// Of what decides which numbers a rank writes into the others' state, or sends them when, and has no place in it.
std::uint64_t print_of_numbers(const DataParallelOptions& options) {
  const EmaOptions ema = options.ema.value_or(EmaOptions{});
  const std::uint64_t numbers[] = {options.seed,
                                   std::bit_cast<std::uint64_t>(ema.decay),
                                   ema.interval,
                                   ema.warmup_steps,
                                   ema.steps_per_epoch,
                                   ema.use_buffers,
                                   options.overlap_bytes,
                                   std::uint64_t(options.reduction),
                                   options.zero1,
                                   options.zero1_copy,
                                   std::uint64_t(options.compression)};
  return state::hash64({reinterpret_cast<const char*>(numbers), sizeof numbers});
}

// Ranks with different layouts would write into each other's places; with other numbers, parts of other averages.
void check_equal_on_all(const state::Layout& layout, const DataParallelOptions& options, comm::Group& group) {
  // The number of buffers and the name are no part of the fingerprint, but here all make one state.
  const std::uint64_t places =
      layout.fingerprint() + std::uint64_t(layout.options().state_buffers) + state::hash64(options.name);
  const std::vector<at::Tensor> all = group.all_gather(
      at::tensor(std::vector{std::int64_t(places), std::int64_t(print_of_numbers(options))}, at::kLong));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (at::equal(all[rank], all[0])) continue;
    const bool same_places = all[rank][0].item<std::int64_t>() == all[0][0].item<std::int64_t>();
    const std::string cause =
        "rank " + std::to_string(rank) +
        (same_places ? " has other options of the average or another seed, overlap_bytes, reduction, compression or "
                       "zero1 than rank 0"
                     : " trains other parameters, attaches another optimizer, gives the model another name, keeps "
                       "other bytes or saves in another way than rank 0");
    group.abort(cause);
    throw Error(cause);
  }
}

void fill(const ModuleView& module, const KeptBytes& kept, state::SharedState& fresh) {
  const at::NoGradGuard no_grad;
  const state::Layout& layout = fresh.layout();
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
    const state::PlacedParameter& place = layout.parameters()[i];
    state::view_of(place.spec, fresh.write(layout.weights(0) + place.offset * sizeof(float)))
        .copy_(module.trainable()[i].second);
  }
  if (layout.options().average)
    std::memcpy(fresh.write(layout.average(0)), fresh.read(layout.weights(0)), layout.elements() * sizeof(float));
  for (std::size_t i = 0; i < layout.frozen().size(); ++i) {
    const state::PlacedBuffer& place = layout.frozen()[i];
    state::view_of(place.spec, fresh.write(layout.frozen_area(0) + place.offset)).copy_(module.frozen()[i].second);
  }
  const ModuleBuffers buffers(tensors_of(module.buffers()), layout);
  buffers.store(fresh.write(layout.module_buffers(0)));
  if (layout.options().average) buffers.store(fresh.write(layout.average_buffers(0)));
  kept.store(fresh, 0);
}

bool is_over_nodes(comm::Group& group) { return group.wire() != nullptr && group.topology().nodes > 1; }

// `before` becomes what there is of the state where its shares are not in place.
state::Layout make_layout(const ModuleView& module, const Beginning& beginning, comm::Group& group,
                          const DataParallelOptions& options, const optim::Needs& needs, SharesBefore& before) {
  std::vector<state::TensorSpec> parameters = module.trainable_specs();
  set_groups(parameters, needs);
  state::LayoutOptions places;
  places.shards = options.shards;
  const ShardSpan here = shards_on_node(group.topology(), options.shards);
  places.slots = here.count();
  places.first_shard = here.first;
  places.optimizer = needs.kind;
  places.optimizer_arrays = needs.arrays;
  if (options.zero1 && is_over_nodes(group)) {
    places.shares = group.topology().nodes;
    places.share = group.topology().node;
    places.copied = options.zero1_copy;
  }
  places.average = options.ema.has_value();
  places.parameter_norms = needs.norms;
  // Where the memory dies with the process, a torn state does, too: one buffer, updated in place.
  const bool dies_with_us = group.wire() == nullptr && group.node().segment.holders() == base::Holders::this_process;
  places.state_buffers = beginning.hold ? 3 : dies_with_us ? 1 : 2;
  places.bytes = beginning.kept.specs();
  state::Layout layout(std::move(parameters), state::specs_of(module.buffers(), false), std::move(places),
                       state::specs_of(module.frozen(), false));
  check_equal_on_all(layout, options, group);
  if (options.zero1) before = take_shares(group, layout, options.name);
  return layout;
}

}  // namespace

void write_copies(const state::SharedState& state, int buffer) {
  std::byte* const begin = state.write(state.layout().weights(buffer));
  for (const state::BoundPlace& place : state::parameter_places(state.layout())) {
    if (!place.copy) continue;
    state::TensorSpec copy = place.spec;
    copy.dtype = at::kBFloat16;
    state::view_of(copy, begin + *place.copy).copy_(state::view_of(place.spec, begin + place.offset));
  }
}

FusedState::FusedState(const ModuleView& module, const Beginning& beginning, comm::Group& group,
                       const DataParallelOptions& options, const optim::Needs& needs)
    : device(module.device()),
      state(
          group.node(), make_layout(module, beginning, group, options, needs, before),
          [&](state::SharedState& fresh) {
            const at::NoGradGuard no_grad;
            fresh.set_frozen_area(0, 0);
            if (before.whole) return fill_with(*std::exchange(before.whole, {}), fresh);
            const bool restores = beginning.restore && group.topology().node == 0;  // the others get it from there
            if (!restores) fill(module, beginning.kept, fresh);
            const std::uint64_t step = restores ? beginning.restore(fresh) : 0;
            write_copies(fresh, 0);
            return step;
          },
          options.name),
      nodes(is_over_nodes(group) ? std::make_unique<BetweenNodes>(state, group, options) : nullptr),
      lane(nodes && nodes->carrier().waves().size() > 1 ? std::make_unique<NodeLane>(nodes->carrier(), group)
                                                        : nullptr),
      guard(state.read(0), state.layout()),
      kept(beginning.kept),
      buffers(tensors_of(module.buffers()), state.layout()),
      page_locked({state.write(0), state.layout().total_bytes()}, device),
      parameters(state::bind(tensors_of(module.trainable()), state::parameter_places(state.layout()), state.memory(),
                             committed_weights())),
      frozen(state::bind(tensors_of(module.frozen()), state::frozen_places(state.layout()), state.memory(),
                         committed_frozen())) {
  const state::Layout& placed = state.layout();
  for (const state::Part& part : placed.parts()) {
    gradients[part.range.begin] = {.type = part.gradients};
    std::vector<const void*>& summands = gradients[part.range.begin].summands;
    for (int slot = 0; slot < placed.options().slots; ++slot)
      summands.push_back(state.read(placed.gradients(slot) + part.offset));
    if (nodes)
      gradients[part.range.begin] = {{state.read(placed.gradient_sums() + part.range.begin * sizeof(float))},
                                     at::kFloat};
  }
  kept.load(state);
  if (!before.why.empty() && group.rank() == 0)
    base::tell(STDERR_FILENO,
               "lockstep: " + text_of_shares(before, state.committed().step, beginning.restore != nullptr) + "\n");
  if (!page_locked.refusal().empty())
    base::Outlet::console(STDERR_FILENO)
        .offer("lockstep: hint: the state is not page-locked, so copies to and from " + device.str() +
               " are slower: " + page_locked.refusal() + "\n");
}

const std::uint64_t* FusedState::step_counts() const {
  return state.read_as<std::uint64_t>(state.layout().step_counts(int(state.committed().buffer)));
}

const std::byte* FusedState::committed_weights() const {
  return source(state.layout().weights(int(state.committed().buffer)));
}

const std::byte* FusedState::committed_frozen() const {
  return source(state.layout().frozen_area(state.frozen_area(int(state.committed().buffer))));
}

// Copies to a device go out of the writable mapping: a read-only one cannot be page-locked.
const std::byte* FusedState::source(std::size_t offset) const {
  return device.is_cpu() ? state.read(offset) : state.write(offset);
}

const std::byte* FusedState::committed_buffers() const {
  return source(state.layout().module_buffers(int(state.committed().buffer)));
}

std::map<std::string, at::Tensor> FusedState::state_dict(const ModuleView& module) const {
  std::map<std::string, at::Tensor> tensors = module.state_dict(masters());
  if (!shows_average && device.is_cpu()) return tensors;
  const std::byte* const area =
      state.read(state.layout().frozen_area(state.frozen_area(int(state.committed().buffer))));
  for (const state::PlacedBuffer& place : state.layout().frozen())
    tensors.insert_or_assign(place.spec.name, state::view_of(place.spec, area + place.offset, state.memory()));
  const std::size_t buffers_at = state.layout().module_buffers(int(state.committed().buffer));
  for (const state::PlacedBuffer& place : state.layout().buffers())
    tensors.insert_or_assign(place.spec.name,
                             state::view_of(place.spec, state.read(buffers_at) + place.offset, state.memory()));
  return tensors;
}

void FusedState::check_bound() const {
  if (shows_average)
    throw UsageError("the model shows its averaged weights as long as what ddp.ema().use() returned lives");
  for (const state::Binding* binding : {parameters.get(), frozen.get()}) {
    if (const std::string* name = binding->replaced())
      throw Error("parameter '" + *name +
                  "' was given other memory (by set_data() or torch::load), but the weights are shared by all ranks; "
                  "do it inside ddp.modify(fn), which takes the new values over");
    if (const std::string* name = binding->edited())
      throw Error("parameter '" + *name +
                  "' was edited in place, but the weights are shared by all ranks; do it inside ddp.modify(fn)");
  }
}

void FusedState::check_frozen() const {
  const std::vector<at::Tensor>& tensors = frozen->tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].requires_grad())
      throw Error("step: parameter '" + state.layout().frozen()[i].spec.name +
                  "' was frozen when the model was wrapped and wants a gradient now; freeze it after that instead");
}

void FusedState::flip() {
  parameters->point_to(committed_weights());
  if (frozen->buffer() != committed_frozen()) frozen->point_to(committed_frozen());
}

void FusedState::settle() const {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

// While the model shows its average, its tensors are that; on a device they are copies, which nobody could read here.
// Else they are themselves, but for those that are shown as bfloat16 copies.
std::vector<at::Tensor> FusedState::masters() const {
  std::vector<at::Tensor> weights = committed(state.layout().weights(int(state.committed().buffer)));
  if (shows_average || !device.is_cpu()) return weights;
  const std::vector<at::Tensor>& shown = parameters->tensors();
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (shown[i].scalar_type() == weights[i].scalar_type()) weights[i] = shown[i].detach();
  return weights;
}

std::vector<at::Tensor> FusedState::averages() const {
  return committed(state.layout().average(int(state.committed().buffer)));
}

std::vector<at::Tensor> FusedState::committed(std::size_t array) const {
  const std::byte* const begin = state.read(array);
  std::vector<at::Tensor> tensors;
  for (const state::PlacedParameter& place : state.layout().parameters())
    tensors.push_back(state::view_of(place.spec, begin + place.offset * sizeof(float), state.memory()));
  return tensors;
}

// The tensors' operations, for the dtypes of buffers are any: as in torchvision, a count becomes the average's whole
// part.
void FusedState::average_buffers(int to, const EmaOptions& options) const {
  const at::NoGradGuard no_grad;
  const state::Layout& layout = state.layout();
  const optim::Averaging averaging = options.use_buffers ? averaging_at(options, next_step()) : optim::Averaging::copy;
  std::byte* const from = const_cast<std::byte*>(state.read(layout.average_buffers(int(state.committed().buffer))));
  for (const state::PlacedBuffer& place : layout.buffers()) {
    const at::Tensor now = state::view_of(place.spec, state.write(layout.module_buffers(to)) + place.offset);
    const at::Tensor before = state::view_of(place.spec, from + place.offset);
    const at::Tensor average = state::view_of(place.spec, state.write(layout.average_buffers(to)) + place.offset);
    if (averaging == optim::Averaging::mean)
      average.copy_(before * options.decay + now * (1 - options.decay));
    else
      average.copy_(averaging == optim::Averaging::copy ? now : before);
  }
}

}  // namespace lockstep::parallel
