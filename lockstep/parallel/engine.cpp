#include "lockstep/parallel/engine.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "lockstep/amp/bf16_parameters.h"
#include "lockstep/base/tree.h"
#include "lockstep/parallel/gradient_hooks.h"
#include "lockstep/parallel/gradient_slots.h"
#include "lockstep/parallel/module_buffers.h"
#include "lockstep/state/binding.h"
#include "lockstep/state/hash.h"
#include "lockstep/state/shared_state.h"
#include "lockstep/state/write_guard.h"

namespace lockstep::parallel {
namespace {

using base::Phase;

static_assert(state::Layout::kBlock == optim::kBlock, "slices and norms share their blocks");

state::Layout make_layout(std::vector<state::TensorSpec> parameters, const NamedTensors& buffers, int shards,
                          int arrays, int ranks) {
  return {std::move(parameters),
          state::specs_of(buffers, false),
          // A rank that is alone loses its memory with its life: one buffer, updated in place.
          {.shards = shards, .optimizer_arrays = arrays, .state_buffers = ranks == 1 ? 1 : 2}};
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

// What a slice and a part have in common; empty at the part's begin when that is nothing.
state::Slice common(const state::Slice& slice, const state::Slice& part) {
  const std::size_t begin = std::clamp(slice.begin, part.begin, part.end);
  return {begin, std::clamp(slice.end, begin, part.end)};
}

void reseed(std::uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace

// In the order in which they depend on each other; destroyed from the last to the first.
struct Engine::Fused {
  Fused(const Engine& engine, int arrays, GradientHooks::Callback on_gradient)
      : state(engine.group_->node(),
              make_layout(engine.parameter_specs(), engine.buffers_, engine.options_.shards, arrays,
                          engine.group_->size()),
              [&](state::SharedState& fresh) { fill(engine, fresh); }),
        guard(state.read(0), state.layout()),
        buffers(tensors_of(engine.buffers_), state.layout()),
        slots(state, engine.local_shards().first, engine.local_shards().last),
        binding(tensors_of(engine.trainable_), state.layout(), committed()),
        callback(std::move(on_gradient)),
        hooks(std::in_place, binding.parameters(), callback) {
    for (const state::Part& part : state.layout().parts())
      for (int shard = 0; shard < engine.options_.shards; ++shard)
        gradients[part.range.begin].push_back(state.read(state.layout().gradients(shard) + part.offset));
    load_buffers();
  }

  static void fill(const Engine& engine, state::SharedState& fresh) {
    const state::Layout& layout = fresh.layout();
    for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
      const state::PlacedParameter& place = layout.parameters()[i];
      state::view_of(place.spec, fresh.write(layout.weights(0) + place.offset * sizeof(float)))
          .copy_(engine.trainable_[i].second.detach());
    }
    write_copies(fresh, 0);
    ModuleBuffers(tensors_of(engine.buffers_), layout).store(fresh.write(layout.module_buffers(0)));
  }

  // On float32 parameters at `buffer`; then they are again what forward reads, wherever that is.
  void edit(std::byte* buffer, const std::function<void()>& fn) {
    binding.point_to(buffer);
    binding.show_masters(true);
    try {
      fn();
    } catch (...) {
      end_edit();
      binding.point_to(committed());
      throw;
    }
    end_edit();
  }
  const std::byte* committed() const { return state.read(state.layout().weights(int(state.committed().buffer))); }
  void end_edit() {
    binding.show_masters(false);
    hooks.emplace(binding.parameters(), callback);
  }

  void load_buffers() { buffers.load(state.read(state.layout().module_buffers(int(state.committed().buffer)))); }

  state::SharedState state;
  state::WriteGuard guard;
  ModuleBuffers buffers;
  GradientSlots slots;
  state::Binding binding;
  GradientHooks::Callback callback;
  std::optional<GradientHooks> hooks;
  std::map<std::size_t, std::vector<const void*>> gradients;  ///< all shards' slots, by where their part begins
};

Engine::Engine(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<comm::Group> group,
               DataParallelOptions options)
    : module_(std::move(module)), group_(std::move(group)), options_(options) {
  if (options_.shards == 0) options_.shards = group_->size();
  if (options_.shards < group_->size())
    throw UsageError("data parallel: " + std::to_string(options_.shards) + " shards for " +
                     std::to_string(group_->size()) + " ranks; every rank needs at least one shard");
  refuse_writing_modules(*module_);
  if (options_.channels_last) make_channels_last(*module_);
  parameters_ = parameters_of(*module_);
  trainable_ = trainable(parameters_);
  frozen_ = frozen(parameters_);
  buffers_ = buffers_of(*module_);
  check_same_module();
  broadcast_module();
  buckets_ = std::make_unique<GradientBuckets>(trainable_, group_);
}

Engine::~Engine() = default;

// Runs what only this rank may fail at; the others hear the reason instead of waiting.
template <class F>
void Engine::or_abort(F&& body) {
  try {
    body();
  } catch (const GroupAborted&) {
    throw;
  } catch (const std::exception& error) {
    group_->abort(error.what(), exit_code(error));
    throw;
  }
}

std::vector<state::TensorSpec> Engine::parameter_specs() const {
  std::vector<state::TensorSpec> specs = state::specs_of(trainable_, true);
  if (options_.amp == Amp::none) return specs;
  const auto copied = amp::bf16_parameters(*module_);
  for (std::size_t i = 0; i < specs.size(); ++i)
    specs[i].bf16 = copied.contains(trainable_[i].second.unsafeGetTensorImpl());
  return specs;
}

void Engine::check_same_module() const {
  const auto named = [&] {
    NamedTensors all = parameters_;
    all.insert(all.end(), buffers_.begin(), buffers_.end());
    return all;
  }();
  std::vector<std::int64_t> prints;
  for (const state::TensorSpec& spec : state::specs_of(named, false))
    prints.push_back(std::int64_t(state::fingerprint(spec)));
  prints.push_back(options_.shards);

  const auto differ = [&](int rank, const std::string& what) {
    const std::string cause = "rank " + std::to_string(rank) + " has another model than rank 0: " + what;
    group_->abort(cause);
    throw Error(cause);
  };
  const auto gather = [&](std::vector<std::int64_t>& values) {
    return group_->all_gather(at::from_blob(values.data(), {std::int64_t(values.size())}, at::kLong));
  };
  std::vector<std::int64_t> count{std::int64_t(prints.size())};
  const std::vector<at::Tensor> counts = gather(count);
  for (int rank = 1; rank < group_->size(); ++rank) {
    const auto theirs = counts[std::size_t(rank)].item<std::int64_t>();
    const auto first = counts[0].item<std::int64_t>();
    if (theirs != first)
      differ(rank, std::to_string(theirs - 1) + " parameters and buffers, not " + std::to_string(first - 1));
  }
  const std::vector<at::Tensor> all = gather(prints);
  for (int rank = 1; rank < group_->size(); ++rank)
    for (std::size_t i = 0; i < prints.size(); ++i)
      if (all[std::size_t(rank)].data_ptr<std::int64_t>()[i] != all[0].data_ptr<std::int64_t>()[i])
        differ(rank, i < named.size() ? "'" + named[i].first + "' differs in name, dtype, shape or strides"
                                      : std::string("another number of shards"));
}

void Engine::broadcast_module() {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : parameters_) group_->broadcast(tensor);
  for (const auto& [name, tensor] : buffers_) group_->broadcast(tensor);
}

void Engine::attach(int arrays) {
  if (fused_) throw UsageError("data parallel: an optimizer is attached already; a model has one");
  buckets_.reset();
  for (const auto& [name, tensor] : trainable_) tensor.mutable_grad().reset();  // of the classic path
  or_abort([&] {
    fused_ = std::make_unique<Fused>(*this, arrays, [this](std::size_t i) { on_gradient(i); });
  });
}

std::uint64_t Engine::steps() const { return fused_ ? fused_->state.committed().step : 0; }

state::StepRecord Engine::last_record() const {
  if (!fused_) return {};
  const state::Layout& layout = fused_->state.layout();
  return *fused_->state.read_as<state::StepRecord>(layout.step_record(int(fused_->state.committed().buffer)));
}

void Engine::begin_forward() {
  if (!module_->is_training() || !torch::GradMode::is_enabled()) return;
  if (buckets_) return begin_classic_forward();
  if (active_shard_) return;
  const ShardSpan mine = local_shards();
  if (mine.count() != 1)
    throw UsageError("data parallel: this rank computes " + std::to_string(mine.count()) +
                     " shards; surround forward and backward by: for (auto& shard : ddp.shards(batch))");
  begin_shard(mine.first);
}

// As PyTorch's broadcast_buffers: every forward starts from rank 0's BatchNorm statistics.
void Engine::begin_classic_forward() {
  buckets_->begin_forward();
  if (!buckets_->enabled()) return;
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : buffers_) group_->broadcast(tensor);
}

void Engine::begin_shard(int shard) {
  if (!fused_) return;
  const ShardSpan mine = local_shards();
  if (shard < mine.first || shard >= mine.last)
    throw UsageError("data parallel: shard " + std::to_string(shard) + " is not one of this rank's (" +
                     std::to_string(mine.first) + " to " + std::to_string(mine.last - 1) + ")");
  end_shard();
  base::Member& member = group_->node().member;
  member.check_abort();
  refuse_set_gradients();
  member.set_step(next_step());
  member.set_phase(Phase::forward);
  active_shard_ = shard;
  fused_->load_buffers();
  *fused_->state.write_as<state::ShardRecord>(fused_->state.layout().shard_record(shard)) = {};
  reseed(shard_seed(options_.seed, next_step(), shard));
}

void Engine::end_shard() {
  // Shard 0's module buffers are those of the next state.
  if (active_shard_ == 0) fused_->buffers.capture();
  active_shard_.reset();
}

void Engine::record(double loss, std::int64_t samples) {
  if (!active_shard_) throw UsageError("data parallel: record() outside a shard; call it between forward and step");
  *fused_->state.write_as<state::ShardRecord>(fused_->state.layout().shard_record(*active_shard_)) = {loss, samples};
}

ForwardScope::ForwardScope(const Engine& engine)
    : autocast_(engine.options_.amp), format_(engine.options_.channels_last) {}

void Engine::on_gradient(std::size_t parameter) {
  const auto& [name, tensor] = trainable_[parameter];
  if (!active_shard_)
    throw UsageError("data parallel: backward reached '" + name +
                     "' outside a shard; run forward through ddp(...) in training mode");
  at::Tensor& gradient = tensor.mutable_grad();
  if (!gradient.defined()) return;  // there is none, which check_complete() tells
  fused_->slots.put(*active_shard_, parameter, gradient);
  gradient.reset();
}

void Engine::discard_gradients() {
  active_shard_.reset();
  if (fused_) fused_->slots.clear();
}

void Engine::refuse_set_gradients() const {
  for (const auto& [name, tensor] : trainable_)
    if (tensor.grad().defined())
      throw Error("step: somebody set .grad of '" + name +
                  "'; gradients belong to the engine, which takes them during backward");
}

void Engine::check_gradients() const {
  refuse_set_gradients();
  for (const auto& [name, tensor] : frozen_)
    if (tensor.requires_grad())
      throw Error("step: parameter '" + name +
                  "' was frozen when the optimizer was made and wants a gradient now; unfreeze it before");
  fused_->slots.check_complete();
}

void Engine::apply(const optim::Rule& rule, const optim::StepOptions& options) {
  or_abort([&] { run_step(rule, options); });
}

void Engine::run_step(const optim::Rule& rule, const optim::StepOptions& options) {
  const std::uint64_t step = next_step();
  base::Member& member = group_->node().member;
  end_shard();
  check_gradients();
  member.set_phase(Phase::gather);
  member.barrier();
  const double norm = options.max_norm > 0 ? gradient_norm() : 0;
  member.set_phase(Phase::update);
  update_slice(rule, norm > 0 ? std::min(1.0f, float(options.max_norm / (norm + 1e-6))) : 1.0f);
  if (group_->rank() == 0) write_record(step, norm);
  member.set_phase(Phase::vote);
  fused_->state.vote(step);
  member.set_phase(Phase::flip);
  flip();
  member.set_phase(Phase::outside);
}

// This rank's slice of each part.
void Engine::update_slice(const optim::Rule& rule, float gradient_scale) {
  const state::Layout& layout = fused_->state.layout();
  const state::Slice mine = layout.slice(group_->rank(), group_->size());
  for (const state::Part& part : layout.parts()) {
    const auto [begin, end] = common(mine, part.range);
    if (begin == end) continue;
    optim::Arrays arrays = arrays_of(part);
    arrays.gradient_scale = gradient_scale;
    optim::update(rule, arrays, begin - part.range.begin, end - part.range.begin, layout.elements());
  }
}

optim::Arrays Engine::arrays_of(const state::Part& part) const {
  const state::SharedState& state = fused_->state;
  const state::Layout& layout = state.layout();
  const int from = int(state.committed().buffer);
  const int to = state.target();
  // In place (a rank that is alone) the kernel must see that it is: one mapping for both.
  const std::size_t first = part.range.begin;
  const auto source = [&](std::size_t offset) -> const float* {
    return (from == to ? state.write_as<float>(offset) : state.read_as<float>(offset)) + first;
  };
  const auto target = [&](std::size_t offset) { return state.write_as<float>(offset) + first; };
  optim::Arrays arrays{.gradients = fused_->gradients.at(first).data(),
                       .shards = options_.shards,
                       .from_weights = source(layout.weights(from)),
                       .to_weights = target(layout.weights(to))};
  if (part.gradients == at::kBFloat16) {
    arrays.gradient_type = optim::GradientType::bfloat16;
    arrays.to_bf16 = state.write_as<std::uint16_t>(layout.bf16_copies(to)) + first;
  }
  for (int array = 0; array < layout.options().optimizer_arrays; ++array) {
    arrays.from_state[array] = source(layout.optimizer_array(from, array));
    arrays.to_state[array] = target(layout.optimizer_array(to, array));
  }
  return arrays;
}

// One more pass and barrier: each rank's blocks, then all blocks in tree order on every rank.
double Engine::gradient_norm() {
  const state::SharedState& state = fused_->state;
  const state::Layout& layout = state.layout();
  const state::Slice mine = layout.slice(group_->rank(), group_->size());
  for (const state::Part& part : layout.parts()) {
    const auto [begin, end] = common(mine, part.range);
    if (begin == end) continue;
    double* sums = state.write_as<double>(layout.block_sums()) + part.range.begin / optim::kBlock;
    optim::square_sums(arrays_of(part), begin - part.range.begin, end - part.range.begin, sums);
  }
  group_->node().member.barrier();
  const auto* sums = state.read_as<double>(layout.block_sums());
  if (layout.blocks() == 0) return 0;
  return std::sqrt(base::tree_sum(0, int(layout.blocks()), [&](int block) { return sums[block]; }));
}

// Shard 0's module buffers and the means over the shards, by rank 0, which computes shard 0.
void Engine::write_record(std::uint64_t step, double gradient_norm) {
  const state::SharedState& state = fused_->state;
  const state::Layout& layout = state.layout();
  const int to = state.target();
  const auto shard = [&](int s) { return *state.read_as<state::ShardRecord>(layout.shard_record(s)); };
  state::StepRecord record{.step = step, .gradient_norm = gradient_norm};
  record.loss = base::tree_sum(0, options_.shards, [&](int s) { return shard(s).loss; }) / options_.shards;
  for (int s = 0; s < options_.shards; ++s) record.samples += shard(s).samples;
  *state.write_as<state::StepRecord>(layout.step_record(to)) = record;
  fused_->buffers.write_captured(state.write(layout.module_buffers(to)));
}

void Engine::flip() {
  fused_->binding.point_to(fused_->committed());
  fused_->load_buffers();
  fused_->slots.clear();
}

void Engine::modify(const std::function<void()>& fn) {
  require_optimizer("modify()");
  if (active_shard_) throw UsageError("data parallel: modify() in the middle of a step");
  base::Member& member = group_->node().member;
  state::SharedState& state = fused_->state;
  const state::Layout& layout = state.layout();
  const int from = int(state.committed().buffer);
  const int to = state.target();
  member.barrier();
  if (group_->rank() == 0) {
    or_abort([&] {
      const torch::NoGradGuard no_grad;
      if (to != from)
        std::memcpy(state.write(layout.weights(to)), state.read(layout.weights(from)), layout.buffer_bytes());
      fused_->edit(state.write(layout.weights(to)), fn);
      write_copies(state, to);
      fused_->buffers.store(state.write(layout.module_buffers(to)));
      state.recommit(to);
    });
  }
  member.barrier();
  flip();
  // What is frozen is not part of the state: each rank has its own copy.
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : frozen_) group_->broadcast(tensor);
}

std::map<std::string, at::Tensor> Engine::state_dict() const {
  std::map<const at::TensorImpl*, at::Tensor> masters;
  if (fused_)
    for (std::size_t i = 0; i < trainable_.size(); ++i)
      masters.emplace(trainable_[i].second.unsafeGetTensorImpl(), fused_->binding.master(i));
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : module_->named_parameters()) {
    const auto master = masters.find(item.value().unsafeGetTensorImpl());
    tensors.emplace(item.key(), master != masters.end() ? master->second : item.value());
  }
  for (const auto& item : module_->named_buffers()) tensors.emplace(item.key(), item.value());
  // An option switched off (BatchNorm without statistics) leaves an undefined entry behind.
  std::erase_if(tensors, [](const auto& item) { return !item.second.defined(); });
  return tensors;
}

std::string Engine::weights_hash() const { return state::tensors_hash(state_dict()); }

std::string Engine::page_size() const {
  require_optimizer("page_size()");
  return base::page_size(fused_->state.read(0));
}

void Engine::require_optimizer(const char* what) const {
  if (!fused_) throw UsageError(std::string("data parallel: ") + what + " needs an attached optimizer");
}

std::string Engine::state_hash() const {
  require_optimizer("state_hash()");
  return fused_->state.buffer_hash(int(fused_->state.committed().buffer));
}

std::shared_ptr<void> Engine::no_sync() {
  if (!buckets_)
    throw UsageError("data parallel: no_sync() is for other optimizers; with ours gradients add up until step()");
  const bool before = buckets_->enabled();
  buckets_->set_enabled(false);
  return {nullptr, [this, before](void*) {
            if (buckets_) buckets_->set_enabled(before);
          }};
}

}  // namespace lockstep::parallel
