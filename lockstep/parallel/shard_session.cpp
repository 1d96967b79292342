#include "lockstep/parallel/shard_session.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/room.h"
#include "lockstep/base/stop_on.h"
#include "lockstep/parallel/named_tensors.h"
#include "lockstep/parallel/shard_record.h"
#include "lockstep/state/binding.h"

namespace lockstep::parallel {
namespace {

// Layers may draw on the device's generator or on the CPU's, which PassSeeds seeds.
void reseed(at::Device device, std::uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

// The system is asked who holds the state where room is wanted; over nodes by one rank of each in every step, too: the
// agent of another node may have asked its ranks already.
std::uint64_t asked_of(const base::Member& member, const FusedState& fused) {
  const std::uint64_t stop = base::StopOn::requested() ? state::kAskedToStop : 0;
  const std::uint64_t room = base::is_room_wanted(member.page(), member.generation()) ? state::kAskedToMakeRoom : 0;
  const bool looks = room != 0 || (fused.nodes != nullptr && member.rank() == 0);
  return stop | room | (looks && fused.state.is_held() ? state::kHeldFromRoom : 0);
}

void refuse_set_gradients(const ModuleView& module) {
  for (const auto& [name, tensor] : module.trainable())
    if (tensor.unsafeGetTensorImpl()->grad().defined())  // without the look whether it is a leaf, which it is
      throw Error("step: somebody set .grad of '" + name +
                  "'; gradients belong to the engine, which takes them during backward");
}

}  // namespace

// ---- slots

GradientSlots::GradientSlots(const FusedState& fused, const comm::Group& group)
    : fused_(fused),
      layout_(fused.state.layout()),
      first_(shards_of(group.topology(), layout_.options().shards).first),
      rank_(group.rank()),
      slots_(std::size_t(shards_of(group.topology(), layout_.options().shards).count())),
      copies_(fused.device.is_cpu() ? nullptr : std::make_unique<GradientCopies>(fused.device)) {
  const int first_slot = first_ - shards_on_node(group.topology(), layout_.options().shards).first;
  for (std::size_t local = 0; local < slots_.size(); ++local)
    for (std::size_t i = 0; i < layout_.parameters().size(); ++i) {
      state::TensorSpec spec = layout_.parameters()[i].spec;
      spec.dtype = layout_.gradient_type(i);
      std::byte* const memory = fused.state.write(layout_.gradient(first_slot + int(local), i));
      slots_[local].push_back({state::view_of(spec, memory)});
    }
  if (fused.lane && !copies_) early_.emplace(Early{*fused.lane, WaveCount(fused.lane->waves(), int(slots_.size()))});
}

void GradientSlots::put(int shard, std::size_t parameter, const at::Tensor& gradient) {
  const state::TensorSpec& spec = layout_.parameters()[parameter].spec;
  if (gradient.layout() != at::kStrided) throw Error(spec.name + ": sparse gradients are not supported");
  Slot& to = slots_[std::size_t(shard - first_)][parameter];
  const at::Tensor& room = has_gone(parameter) ? apart_of(to) : to.tensor;
  if (copies_) {
    const at::NoGradGuard no_grad;
    put_from_device(to, gradient);
  } else if (!to.written && gradient.scalar_type() == room.scalar_type() && gradient.strides() == room.strides() &&
             gradient.sizes() == room.sizes()) {
    // The usual case, without the dispatcher.
    const std::size_t bytes = gradient.nbytes();
    if (bytes > 0) std::memcpy(room.mutable_data_ptr(), gradient.const_data_ptr(), bytes);
  } else {
    const at::NoGradGuard no_grad;  // a slot must not become part of a graph
    if (to.written)
      room.add_(gradient);
    else
      room.copy_(gradient);
  }
  to.written = true;
  to.zero = false;
}

void GradientSlots::put_from_device(Slot& to, const at::Tensor& gradient) {
  if (!to.written) return copies_->start(to.tensor, gradient);
  const at::Tensor more = gradient.to(at::kCPU);
  copies_->wait();
  to.tensor.add_(more);
}

at::Tensor GradientSlots::take(int shard, std::size_t parameter, at::ScalarType dtype) {
  Slot& slot = slots_[std::size_t(shard - first_)][parameter];
  if (copies_ || slot.written || slot.tensor.scalar_type() != dtype || !slot.tensor.is_contiguous()) return {};
  if (has_gone(parameter)) return {};
  slot.written = true;
  slot.zero = false;
  return slot.tensor;
}

void GradientSlots::check_complete(const std::vector<at::Tensor>& parameters) const {
  for (std::size_t local = 0; local < slots_.size(); ++local) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (!slots_[local][i].written && parameters[i].requires_grad())
        names.push_back(layout_.parameters()[i].spec.name);
    if (names.empty()) continue;
    throw Error("step: " + text_of_parameters(names) + " got no gradient in shard " +
                std::to_string(first_ + int(local)) + ", of rank " + std::to_string(rank_) +
                "; every parameter must take part in the loss (set requires_grad to false for those that do not, or "
                "find_unused_parameters)");
  }
}

void GradientSlots::finish(const std::vector<at::Tensor>& parameters, bool may_be_unused, bool has_inputs) {
  if (has_inputs && !may_be_unused) check_complete(parameters);
  if (copies_) copies_->wait();
  for (std::size_t local = 0; local < slots_.size(); ++local) {
    auto* uses = fused_.state.write_as<state::ParameterUse>(layout_.uses(first_ + int(local)));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Slot& slot = slots_[local][i];
      uses[i] = !has_inputs                     ? state::ParameterUse::no_inputs
                : slot.written                  ? state::ParameterUse::gradient
                : parameters[i].requires_grad() ? state::ParameterUse::none
                                                : state::ParameterUse::frozen;
      if (!has_gone(i)) fill(slot);
    }
  }
}

bool GradientSlots::empty() const {
  const auto unwritten = [](const Slot& slot) { return !slot.written; };
  return std::all_of(slots_.begin(), slots_.end(),
                     [&](const auto& shard) { return std::all_of(shard.begin(), shard.end(), unwritten); });
}

void GradientSlots::clear() {
  for (auto& shard : slots_)
    for (Slot& slot : shard) slot.written = false;
  if (!early_) return;
  for (auto& shard : slots_)
    for (Slot& slot : shard) slot.apart.reset();
  early_->outdated = early_->outdated || early_->lane.sealed() > 0;
  early_->count.drop();
}

// What was not written counts as zeros.
void GradientSlots::fill(Slot& slot) {
  if (slot.written || slot.zero) return;
  if (slot.tensor.nbytes() > 0) std::memset(slot.tensor.mutable_data_ptr(), 0, slot.tensor.nbytes());
  slot.zero = true;
}

// A thread reads what has gone out until the ranks have met behind the exchange.
const at::Tensor& GradientSlots::apart_of(Slot& slot) {
  const at::NoGradGuard no_grad;
  if (!slot.apart.defined()) slot.apart = slot.written ? slot.tensor.clone() : at::empty_like(slot.tensor);
  early_->outdated = true;
  return slot.apart;
}

void GradientSlots::send_whole(int shard, std::size_t parameter) {
  auto& [lane, count, outdated] = *early_;
  count.came(shard - first_, parameter);
  // Who has no inputs, or ends join() early, would be waited for by the threads of the others.
  if (fused_.joins) return;
  // While other models have still to make the step, what comes is of their passes: zero_grad() drops it behind that.
  if (fused_.state.is_ahead()) return;
  while (lane.sealed() < count.whole()) {
    const Wave& wave = count.wave(lane.sealed());
    for (auto& slots : slots_)
      for (std::size_t i = wave.first; i < wave.last; ++i) fill(slots[i]);
    lane.seal(fused_.next_step());
  }
}

void GradientSlots::exchanged(bool again) {
  if (!early_) return;
  early_->count.learn(again);
  if (!std::exchange(early_->outdated, false)) return;
  const at::NoGradGuard no_grad;
  for (auto& shard : slots_)
    for (Slot& slot : shard) {
      if (slot.apart.defined()) slot.tensor.copy_(slot.apart);
      slot.apart.reset();
      fill(slot);
    }
}

// ---- the session

ShardSession::ShardSession(FusedState& fused, GradientSlots& slots, const ModuleView& module, comm::Group& group,
                           const DataParallelOptions& options)
    : fused_(fused),
      slots_(slots),
      module_(module),
      member_(group.node().member),
      mine_(shards_of(group.topology(), options.shards)),
      seed_(options.seed),
      may_be_unused_(options.find_unused_parameters || options.static_graph),
      shards_(std::size_t(mine_.count())) {
  for (Shard& shard : shards_) shard.module_buffers.resize(fused_.state.layout().module_buffer_bytes());
  for (int shard = mine_.first; shard < mine_.last; ++shard) seeds_.emplace_back(options.seed, shard);
  restart();
}

void ShardSession::begin_shard(int shard) {
  if (shard < mine_.first || shard >= mine_.last)
    throw UsageError("data parallel: shard " + std::to_string(shard) + " is not one of this rank's (" +
                     std::to_string(mine_.first) + " to " + std::to_string(mine_.last - 1) + ")");
  open(shard);
  loops_ = true;
}

void ShardSession::begin_forward() {
  if (loops_ && active_) return;
  if (mine_.count() != 1)
    throw UsageError("data parallel: this rank computes " + std::to_string(mine_.count()) +
                     " shards; surround forward and backward by: for (auto& shard : ddp.shards(batch))");
  open(mine_.first);
}

void ShardSession::open(int shard) {
  member_.check_abort();
  refuse_set_gradients(module_);
  fused_.check_bound();
  const std::uint64_t step = fused_.next_step();
  member_.set_step(step);
  member_.set_phase(base::Phase::forward);
  if (!active_) fused_.buffers.check_untouched();
  if (active_ != shard) {
    keep_active();
    const Shard& next = at(shard);
    fused_.buffers.load(next.from_committed ? fused_.committed_buffers() : next.module_buffers.data());
  } else {
    add(at(shard).record, pass_record_);
    if (at(shard).from_committed) fused_.buffers.load(fused_.committed_buffers());
  }
  at(shard).from_committed = false;
  active_ = shard;
  pass_record_ = {};
  gradients_came_ = false;
  const std::uint64_t pass = at(shard).passes++;
  seeds_[std::size_t(shard - mine_.first)].begin(step, pass);
  if (!fused_.device.is_cpu()) reseed(fused_.device, shard_seed(seed_, step, shard, pass));
}

void ShardSession::keep_active() {
  if (!active_) return;
  Shard& shard = at(*active_);
  add(shard.record, pass_record_);
  fused_.buffers.store(shard.module_buffers.data());
  active_.reset();
}

void ShardSession::record(double loss, std::int64_t samples) {
  if (!active_) throw UsageError("data parallel: record() outside a shard; call it between forward and step");
  add(pass_record_, {loss, samples});
}

void ShardSession::take_gradient(std::size_t parameter) {
  const auto& [name, tensor] = module_.trainable()[parameter];
  const at::Tensor gradient = std::move(tensor.mutable_grad());  // whatever happens, no .grad stays behind
  if (!active_)
    throw UsageError("data parallel: backward reached '" + name +
                     "' outside a shard; run forward through ddp(...) in training mode");
  watch_.enter();
  if (gradient.defined()) {  // else it lies in its slot, or there is none, which gather() tells
    slots_.put(*active_, parameter, gradient);
    gradients_came_ = true;
  }
  slots_.came(*active_, parameter);
}

// Outside a shard, and beside a .grad that somebody set, take_gradient() says what is wrong, or adds.
at::Tensor ShardSession::take_slot(std::size_t parameter, at::ScalarType dtype) {
  if (!active_ || module_.trainable()[parameter].second.grad().defined()) return {};
  watch_.enter();  // what the pass leaves half written is not taken for a gradient
  at::Tensor slot = slots_.take(*active_, parameter, dtype);
  gradients_came_ |= slot.defined();
  return slot;
}

void ShardSession::discard_gradients() {
  const bool goes_on = active_ && !gradients_came_;  // its backward follows
  const bool had_passes = begun();
  module_.drop_gradients();
  slots_.clear();
  for (Shard& shard : shards_) {
    shard.record = {};
    shard.from_committed = !goes_on || &shard != &at(*active_);
  }
  if (gradients_came_) pass_record_ = {};
  gradients_came_ = false;
  if (!active_ && had_passes) {
    fused_.buffers.load(fused_.committed_buffers());
    fused_.buffers.remember();
  }
  watch_.forget();
}

bool ShardSession::begun() const {
  return std::any_of(shards_.begin(), shards_.end(), [](const Shard& shard) { return shard.passes > 0; });
}

void ShardSession::gather(std::optional<double> denominator, std::uint64_t options, std::uint64_t rules,
                          bool has_inputs) {
  if (active_) {
    keep_active();
    fused_.buffers.remember();
  }
  const std::uint64_t asked = asked_of(member_, fused_);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    state::ShardRecord record = shards_[i].record;
    record.options = options;
    record.rules = rules;
    record.asked = asked;
    record.again = slots_.outdated() ? 1 : 0;
    record.denominator = !denominator ? std::numeric_limits<double>::quiet_NaN() : i == 0 ? *denominator : 0;
    *fused_.state.write_as<state::ShardRecord>(fused_.state.layout().shard_record(mine_.first + int(i))) = record;
  }
  refuse_set_gradients(module_);
  fused_.check_bound();
  fused_.check_frozen();
  slots_.finish(fused_.parameters->tensors(), may_be_unused_, has_inputs);
}

void ShardSession::write_module_buffers(std::byte* to) const {
  const Shard& first = shards_.front();
  if (first.module_buffers.empty()) return;
  // Without a pass in this step, or with passes that were dropped, they are what they were.
  const std::byte* const last = first.from_committed ? fused_.committed_buffers() : first.module_buffers.data();
  std::memcpy(to, last, first.module_buffers.size());
}

void ShardSession::restart() {
  active_.reset();
  loops_ = false;
  gradients_came_ = false;
  pass_record_ = {};
  slots_.clear();
  for (Shard& shard : shards_) {
    shard.passes = 0;
    shard.from_committed = true;
    shard.record = {};
  }
  fused_.buffers.load(fused_.committed_buffers());
  fused_.buffers.remember();
}

GradientHooks gradient_hooks(const FusedState& fused, ShardSession& session, StepClock& clock) {
  return {fused.parameters->tensors(),
          [&session, &clock](std::size_t parameter, bool) {
            session.take_gradient(parameter);
            clock.gradient(parameter);
          },
          [&session](std::size_t parameter, at::ScalarType dtype) { return session.take_slot(parameter, dtype); }};
}

}  // namespace lockstep::parallel
