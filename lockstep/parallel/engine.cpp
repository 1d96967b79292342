#include "lockstep/parallel/engine.h"

#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "lockstep/base/tree.h"
#include "lockstep/parallel/fused_state.h"
#include "lockstep/state/hash.h"

namespace lockstep::parallel {
namespace {

using base::Phase;

static_assert(state::Layout::kBlock == optim::kBlock, "slices and norms share their blocks");

// What a slice and a part have in common; empty at the part's begin when that is nothing.
state::Slice common(const state::Slice& slice, const state::Slice& part) {
  const std::size_t begin = std::clamp(slice.begin, part.begin, part.end);
  return {begin, std::clamp(slice.end, begin, part.end)};
}

DataParallelOptions for_group(DataParallelOptions options, const comm::Group& group) {
  if (options.shards == 0) options.shards = group.size();
  if (options.shards < group.size())
    throw UsageError("data parallel: " + std::to_string(options.shards) + " shards for " +
                     std::to_string(group.size()) + " ranks; every rank needs at least one shard");
  return options;
}

}  // namespace

Engine::Engine(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<comm::Group> group,
               DataParallelOptions options)
    : module_(std::move(module)),
      group_(std::move(group)),
      options_(for_group(options, *group_)),
      view_(*module_, options_) {
  view_.check_equal_on_all(*group_, options_.shards);
  view_.broadcast(*group_);
  buckets_ = std::make_unique<GradientBuckets>(view_.trainable(), group_);
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

void Engine::attach(int arrays) {
  if (fused_) throw UsageError("data parallel: an optimizer is attached already; a model has one");
  if (arrays < 0 || arrays > optim::kMaxStateArrays)
    throw UsageError("data parallel: an optimizer with " + std::to_string(arrays) +
                     " numbers of state for each weight; 0 to " + std::to_string(optim::kMaxStateArrays) +
                     " are possible");
  buckets_.reset();
  for (const auto& [name, tensor] : view_.trainable()) tensor.mutable_grad().reset();  // of the classic path
  or_abort([&] {
    fused_ = std::make_unique<FusedState>(view_, *group_, options_, arrays, [this](std::size_t i) { on_gradient(i); });
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
  if (loops_ && fused_->session.active()) return;
  const ShardSpan mine = local_shards();
  if (mine.count() != 1)
    throw UsageError("data parallel: this rank computes " + std::to_string(mine.count()) +
                     " shards; surround forward and backward by: for (auto& shard : ddp.shards(batch))");
  open_pass(mine.first);
}

// As PyTorch's broadcast_buffers: every forward starts from rank 0's BatchNorm statistics.
void Engine::begin_classic_forward() {
  buckets_->begin_forward();
  if (!buckets_->enabled()) return;
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : view_.buffers()) group_->broadcast(tensor);
}

void Engine::begin_shard(int shard) {
  if (!fused_) return;
  const ShardSpan mine = local_shards();
  if (shard < mine.first || shard >= mine.last)
    throw UsageError("data parallel: shard " + std::to_string(shard) + " is not one of this rank's (" +
                     std::to_string(mine.first) + " to " + std::to_string(mine.last - 1) + ")");
  open_pass(shard);
  loops_ = true;
}

void Engine::open_pass(int shard) {
  base::Member& member = group_->node().member;
  member.check_abort();
  refuse_set_gradients();
  fused_->check_bound();
  member.set_step(next_step());
  member.set_phase(Phase::forward);
  fused_->session.open(shard, next_step());
}

void Engine::record(double loss, std::int64_t samples) {
  require_optimizer("record()");
  fused_->session.record(loss, samples);
}

ForwardScope::ForwardScope(const Engine& engine)
    : autocast_(engine.options_.amp), format_(engine.options_.channels_last) {}

void Engine::on_gradient(std::size_t parameter) {
  const auto& [name, tensor] = view_.trainable()[parameter];
  const at::Tensor gradient = std::move(tensor.mutable_grad());  // whatever happens, no .grad stays behind
  const std::optional<int> shard = fused_->session.active();
  if (!shard)
    throw UsageError("data parallel: backward reached '" + name +
                     "' outside a shard; run forward through ddp(...) in training mode");
  fused_->watch.enter();
  if (!gradient.defined()) return;  // there is none, which check_complete() tells
  fused_->slots.put(*shard, parameter, gradient);
  fused_->session.gradient_came();
}

void Engine::discard_gradients() {
  for (const auto& [name, tensor] : view_.trainable()) tensor.mutable_grad().reset();
  if (!fused_) return;
  fused_->slots.clear();
  fused_->session.discard_gradients();
  fused_->watch.forget();
}

void Engine::refuse_set_gradients() const {
  for (const auto& [name, tensor] : view_.trainable())
    if (tensor.grad().defined())
      throw Error("step: somebody set .grad of '" + name +
                  "'; gradients belong to the engine, which takes them during backward");
}

void Engine::check_gradients() const {
  refuse_set_gradients();
  fused_->check_bound();
  for (const auto& [name, tensor] : view_.frozen())
    if (tensor.requires_grad())
      throw Error("step: parameter '" + name +
                  "' was frozen when the optimizer was made and wants a gradient now; unfreeze it before");
  fused_->slots.check_complete();
}

void Engine::apply(const optim::Rule& rule, const optim::StepOptions& options) {
  fused_->watch.require_whole("step");  // of this rank alone, and to be mended: the others wait
  double norm = 0;
  or_abort([&] { norm = gather(options); });
  if (options.error_if_nonfinite && !std::isfinite(norm)) refuse_norm(norm);
  or_abort([&] { update(rule, options, norm); });
}

// Until every rank's gradients are there. Returns their norm, if it is wanted.
double Engine::gather(const optim::StepOptions& options) {
  base::Member& member = group_->node().member;
  fused_->session.close();
  check_gradients();
  member.set_phase(Phase::gather);
  member.barrier();
  return options.max_norm > 0 || options.error_if_nonfinite ? gradient_norm() : 0;
}

void Engine::update(const optim::Rule& rule, const optim::StepOptions& options, double norm) {
  const std::uint64_t step = next_step();
  base::Member& member = group_->node().member;
  member.set_phase(Phase::update);
  update_slice(rule, options.max_norm > 0 ? optim::clip_coefficient(options.max_norm, norm) : 1.0f);
  if (group_->rank() == 0) write_record(step, norm);
  member.set_phase(Phase::vote);
  fused_->state.vote(step);
  member.set_phase(Phase::flip);
  fused_->flip();
  loops_ = false;
  member.set_phase(Phase::outside);
}

// Every rank comes here, for all have the same norm; nobody goes on to write gradients before all have looked.
void Engine::refuse_norm(double norm) {
  std::ostringstream text;
  text << "step " << next_step() << ": the norm of the gradients is " << norm
       << "; the first parameter whose gradient is "
       << "not finite is '" << first_nonfinite() << "'. Nothing was updated; optimizer.zero_grad() drops the gradients";
  or_abort([&] { group_->node().member.barrier(); });
  group_->node().member.set_phase(Phase::outside);
  throw Error(text.str());
}

std::string Engine::first_nonfinite() const {
  const state::Layout& layout = fused_->state.layout();
  for (const state::PlacedParameter& parameter : layout.parameters())
    for (const state::Part& part : layout.parts()) {
      const auto [begin, end] = common({parameter.offset, parameter.offset + parameter.elements}, part.range);
      const std::size_t last = end - part.range.begin;
      if (optim::first_nonfinite(arrays_of(part), begin - part.range.begin, last) != last) return parameter.spec.name;
    }
  return {};
}

// This rank's slice of each part.
void Engine::update_slice(const optim::Rule& rule, float gradient_scale) {
  const state::Layout& layout = fused_->state.layout();
  const state::Slice mine = layout.slice(group_->rank(), group_->size());
  const auto each_part = [&](auto&& body) {
    for (const state::Part& part : layout.parts()) {
      const auto [begin, end] = common(mine, part.range);
      if (begin == end) continue;
      optim::Arrays arrays = arrays_of(part);
      arrays.gradient_scale = gradient_scale;
      body(arrays, begin - part.range.begin, end - part.range.begin);
    }
  };
  const auto update = [&](optim::Stores stores) {
    stores_ = stores;
    each_part([&](const optim::Arrays& arrays, std::size_t begin, std::size_t end) {
      optim::update(rule, arrays, begin, end, stores);
    });
  };
  // In place every line has just been read: there is nothing to spare.
  if (layout.options().state_buffers == 1) return update(optim::Stores::plain);
  optim::run_update(store_choice_, group_->size(), update, [&] { each_part(optim::read_back); });
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
  record.loss = mean_loss(options_.shards, shard);
  for (int s = 0; s < options_.shards; ++s) record.samples += shard(s).samples;
  *state.write_as<state::StepRecord>(layout.step_record(to)) = record;
  fused_->session.write_module_buffers(state.write(layout.module_buffers(to)));
  state.set_frozen_area(to, state.frozen_area(int(state.committed().buffer)));
}

void Engine::modify(const std::function<void()>& fn) {
  require_optimizer("modify()");
  if (!fused_->slots.empty()) throw UsageError("data parallel: modify() in the middle of a step");
  base::Member& member = group_->node().member;
  or_abort([&] { fused_->check_bound(); });
  // What passes have left is no state, and rank 0's shard depends on the number of ranks.
  if (fused_->session.begun()) fused_->session.restart();
  member.barrier();
  if (group_->rank() == 0) or_abort([&] { fused_->edit(fn); });
  member.barrier();
  fused_->flip();
  loops_ = false;
}

std::map<std::string, at::Tensor> Engine::state_dict() const {
  std::map<const at::TensorImpl*, at::Tensor> masters;
  if (fused_)
    for (std::size_t i = 0; i < view_.trainable().size(); ++i)
      masters.emplace(view_.trainable()[i].second.unsafeGetTensorImpl(), fused_->parameters.master(i));
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
