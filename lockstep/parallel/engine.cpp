#include "lockstep/parallel/engine.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/stop_on.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/parallel/average_scope.h"
#include "lockstep/parallel/beginning.h"
#include "lockstep/parallel/classic_path.h"
#include "lockstep/parallel/fused_join.h"
#include "lockstep/parallel/fused_state.h"
#include "lockstep/parallel/ignored_options.h"
#include "lockstep/parallel/module_view.h"
#include "lockstep/parallel/option_checks.h"
#include "lockstep/parallel/shard_session.h"
#include "lockstep/parallel/state_editor.h"
#include "lockstep/parallel/step_clock.h"
#include "lockstep/parallel/step_transaction.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "lockstep/state/hash.h"

namespace lockstep::parallel {
namespace {

// Layers that normalise over the ranks would take one shard after the other, each with those that peers happen to run.
void require_one_shard_each(const torch::nn::Module& module, int shards, int ranks) {
  if (shards == ranks) return;
  const std::string layer = synchronized_layer(module);
  if (!layer.empty())
    throw UsageError("data parallel: " + std::to_string(shards) + " shards on " + std::to_string(ranks) +
                     " ranks, but SyncBatchNorm ('" + layer + "') needs one shard per rank: set shards to " +
                     std::to_string(ranks) + ", or 0");
}

}  // namespace

// What there is with an optimizer of ours, in the order in which the parts depend on each other.
struct FusedPath {
  FusedPath(const ModuleView& module, const Beginning& beginning, const std::shared_ptr<comm::Group>& group,
            const DataParallelOptions& options, const optim::Needs& needs, StepClock& clock)
      : fused(module, beginning, *group, options, needs),
        slots(fused, *group),
        session(fused, slots, module, *group, options),
        hooks(gradient_hooks(fused, session, clock)),
        step(fused, slots, session, *group, options, clock),
        inputs(fused, session, step, group, clock),
        editor(fused, session, hooks, *group) {}

  FusedState fused;
  GradientSlots slots;
  ShardSession session;
  GradientHooks hooks;
  StepTransaction step;
  FusedJoin inputs;  ///< through which each step goes
  StateEditor editor;
};

struct EngineParts {
  EngineParts(std::shared_ptr<torch::nn::Module> the_module, std::shared_ptr<comm::Group> the_group,
              DataParallelOptions wanted)
      : module(std::move(the_module)),
        group(group_of(std::move(the_group), wanted)),
        options(for_group(wanted, *group)),
        view(*module, options) {}

  FusedPath& attached(const char* what) const {
    if (!path) throw UsageError(std::string("data parallel: ") + what + " needs an attached optimizer");
    return *path;
  }

  GradientPath gradient_path() const {
    if (path) return GradientPath::shared;
    return classic->has_hook() ? GradientPath::hooked : GradientPath::buckets;
  }

  // Rank 0 says so once, as soon as it is known who exchanges gradients.
  void tell_ignored_options() {
    if (std::exchange(told_ignored, gradient_path()) == gradient_path() || group->rank() != 0) return;
    for (const std::string& one : ignored_options(options, gradient_path(), group->topology()))
      base::Outlet::console(STDERR_FILENO)
          .offer("lockstep: hint: DistributedDataParallel without effect: " + one + "\n");
    note_ignored_options();
  }

  // Into the timeline, where there is one, on rank 0.
  void note_ignored_options() {
    if (clock.timeline() == nullptr || group->rank() != 0) return;
    for (const std::string& one : ignored_options(options, gradient_path(), group->topology()))
      clock.timeline()->note("without effect: " + one);
  }

  void tell_traffic() const {
    if (path->fused.nodes && group->topology().nodes > 1 && group->rank() == 0)
      base::Outlet::console(STDERR_FILENO).offer("lockstep: " + path->fused.nodes->traffic() + "\n");
  }

  std::shared_ptr<torch::nn::Module> module;
  std::shared_ptr<comm::Group> group;
  DataParallelOptions options;
  ModuleView view;
  Beginning beginning;
  StepClock clock;
  std::unique_ptr<ClassicPath> classic;  ///< until attach()
  std::optional<HookMemory> hook_memory;
  std::unique_ptr<FusedPath> path;  ///< from attach() on
  std::optional<GradientPath> told_ignored;
  bool commits_together = false;  ///< with other models
  std::string timeline_path;
};

Engine::Engine(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<comm::Group> group,
               DataParallelOptions options)
    : parts_(std::make_unique<EngineParts>(std::move(module), std::move(group), options)) {
  require_one_shard_each(this->module(), shards(), this->group().size());
  const ModuleView& view = parts_->view;
  const DataParallelOptions& options_now = this->options();
  if (options_now.init_sync) {
    view.check_equal_on_all(*parts_->group, options_now);
    view.broadcast(*parts_->group);
  }
  parts_->classic = std::make_unique<ClassicPath>(view, parts_->group, parts_->options, parts_->clock);
}

Engine::~Engine() = default;

comm::Group& Engine::group() const { return *parts_->group; }
torch::nn::Module& Engine::module() const { return *parts_->module; }
at::Device Engine::device() const { return parts_->view.device(); }
const DataParallelOptions& Engine::options() const { return parts_->options; }
Part Engine::part() const { return {group().rank(), group().size(), shards()}; }
ShardSpan Engine::local_shards() const { return part().span(); }

std::vector<optim::Parameter> Engine::parameters() const {
  std::vector<optim::Parameter> found;
  for (const auto& [name, tensor] : parts_->view.trainable()) found.push_back({name, tensor.unsafeGetTensorImpl()});
  return found;
}

void Engine::attach(const optim::Needs& needs) {
  if (parts_->path) throw UsageError("data parallel: an optimizer is attached already; a model has one");
  if (group().shared_node() == nullptr)
    throw UsageError(
        "data parallel: the optimizers of lockstep::optim keep the weights in memory that the ranks of a node share, "
        "and this group has none (shared_node() is null); take one of torch::optim, or a group with a node");
  check_needs(needs, options());
  if (parts_->classic->has_hook())
    throw UsageError(
        "data parallel: a communication hook is registered, and an optimizer of ours exchanges gradients in memory "
        "that the ranks share, without a hook; take one of torch::optim, or .compression instead, between nodes");
  if (!options().init_sync) parts_->view.check_equal_on_all(group(), options());  // the state is of one model
  parts_->classic.reset();
  parts_->view.drop_gradients();  // of the classic path
  or_abort(group(), [&] {
    parts_->path =
        std::make_unique<FusedPath>(parts_->view, parts_->beginning, parts_->group, options(), needs, parts_->clock);
  });
  parts_->tell_ignored_options();
  parts_->tell_traffic();
}

void Engine::begin_shard(int shard) {
  require_one_shard_each(module(), shards(), group().size());  // it may have been converted since
  if (!parts_->path) return check_one_backward(shards(), group());
  parts_->path->hooks.hook_unfrozen();
  parts_->path->session.begin_shard(shard);
}

void Engine::begin_forward() {
  const bool trains = module().is_training() && at::GradMode::is_enabled();
  if (trains) {
    comm::or_abort(group(), [&] { parts_->view.refuse_new_parameters(); });
    parts_->clock.begin_forward();
    if (parts_->classic) parts_->tell_ignored_options();
  }
  if (parts_->classic) return parts_->classic->begin_forward();
  if (!trains) return;
  FusedPath& path = parts_->attached("forward");
  path.hooks.hook_unfrozen();
  path.session.begin_forward();
}

void Engine::end_forward() {
  if (module().is_training() && at::GradMode::is_enabled()) parts_->clock.end_forward();
}

void Engine::begin_evaluation() {
  if (parts_->classic) parts_->classic->begin_evaluation();
}

void Engine::record(double loss, std::int64_t samples) { parts_->attached("record()").session.record(loss, samples); }

void Engine::apply(const optim::Rules& rules, const optim::StepOptions& options) {
  FusedPath& path = parts_->attached("step()");
  parts_->clock.begin_update();
  path.inputs.step(rules, options);
  parts_->clock.end_step(steps(), /*updated=*/true);
}

void Engine::discard_gradients() {
  if (parts_->path)
    parts_->path->session.discard_gradients();
  else
    parts_->view.drop_gradients();
}

std::uint64_t Engine::steps() const { return parts_->path ? parts_->path->fused.state.committed().step : 0; }

state::StepRecord Engine::last_record() const {
  if (!parts_->path) return {};
  const state::SharedState& shared = parts_->path->fused.state;
  return *shared.read_as<state::StepRecord>(shared.layout().step_record(int(shared.committed().buffer)));
}

bool Engine::should_stop() {
  if (parts_->path) return parts_->path->step.should_stop();
  const auto flags = group().all_gather(at::full({1}, std::int64_t(base::StopOn::requested()), at::kLong));
  return std::any_of(flags.begin(), flags.end(), [](const at::Tensor& flag) { return flag.item<bool>(); });
}

void Engine::modify(const std::function<void()>& fn) { parts_->attached("modify()").editor.modify(fn); }

std::map<std::string, at::Tensor> Engine::state_dict() const {
  const ModuleView& view = parts_->view;
  return parts_->path ? parts_->path->fused.state_dict(view) : view.state_dict(tensors_of(view.trainable()));
}

std::string Engine::weights_hash() const { return state::tensors_hash(state_dict()); }

std::shared_ptr<void> Engine::no_sync() {
  if (!parts_->classic)
    throw UsageError("data parallel: no_sync() is for other optimizers; with ours gradients add up until step()");
  return parts_->classic->no_sync();
}

void commit_together(std::span<Engine* const> models) {
  std::vector<state::SharedState*> states;
  std::uint64_t oldest = UINT64_MAX;
  for (Engine* const model : models) {
    states.push_back(&model->parts_->attached("commit_together()").fused.state);
    if (model->options().zero1) refuse_commit_of_shares();
    oldest = std::min(oldest, states.back()->committed().step);
  }
  for (Engine* const model : models) model->parts_->path->editor.go_back(oldest);
  state::SharedState::commit_together(states);
  for (Engine* const model : models) model->parts_->commits_together = true;
}

void Engine::register_comm_hook(CommHook hook, std::optional<HookMemory> memory) {
  if (!parts_->classic)
    throw UsageError(
        "data parallel: register_comm_hook() is for optimizers of torch::optim; ours exchange gradients in memory that "
        "the ranks share, without a hook, and between nodes as DataParallelOptions::compression says");
  parts_->classic->register_comm_hook(std::move(hook));
  parts_->hook_memory = std::move(memory);
}

const HookMemory* Engine::hook_memory() const { return parts_->hook_memory ? &*parts_->hook_memory : nullptr; }

void Engine::join(const std::function<void()>& loop, const JoinOptions& options) {
  const std::string layer = synchronized_layer(module(), parts_->group.get());
  if (!layer.empty())
    throw UsageError("data parallel: join() with SyncBatchNorm ('" + layer +
                     "') over another group than the model's, in which ranks without inputs do not take part; give it "
                     "the group of DistributedDataParallel");
  if (this->options().amp == Amp::fp16 && !options.scaler && !options.throw_on_early_termination)
    throw UsageError(
        "data parallel: join() with Amp::fp16, where the loss scale of a rank without inputs would stand still; give "
        "its GradScaler as JoinOptions::scaler");
  if (parts_->classic && this->options().skip_all_reduce_unused_params)
    throw UsageError(
        "data parallel: join() with skip_all_reduce_unused_params, where a rank without inputs cannot know which "
        "buckets the others send; leave it out");
  if (parts_->commits_together) refuse_join_of_several();
  if (parts_->path) return parts_->path->inputs.join(loop, options);
  parts_->classic->join(loop, options, !synchronized_layer(module()).empty());
}

EngineEma Engine::ema() { return EngineEma(*parts_); }

FusedState& EngineEma::averaged(const char* what) const {
  if (!parts_.options.ema)
    throw UsageError(std::string("data parallel: ") + what + " needs DataParallelOptions::ema, which was not given");
  return parts_.attached(what).fused;
}

std::map<std::string, at::Tensor> EngineEma::state_dict() const {
  const FusedState& fused = averaged("ema().state_dict()");
  std::map<std::string, at::Tensor> tensors = parts_.view.state_dict(fused.averages());
  const state::Layout& layout = fused.state.layout();
  const std::byte* const buffers = fused.state.read(layout.average_buffers(int(fused.state.committed().buffer)));
  for (std::size_t i = 0; i < layout.buffers().size(); ++i) {
    const at::TensorImpl* const own = parts_.view.buffers()[i].second.unsafeGetTensorImpl();
    const state::PlacedBuffer& place = layout.buffers()[i];
    for (auto& [name, tensor] : tensors)
      if (tensor.unsafeGetTensorImpl() == own)
        tensor = state::view_of(place.spec, buffers + place.offset, fused.state.memory());
  }
  return tensors;
}

std::shared_ptr<void> EngineEma::use() const { return std::make_shared<AverageScope>(averaged("ema().use()")); }

EngineState Engine::state() { return EngineState(*parts_); }

void EngineState::keep(std::string name, std::span<std::byte> memory) const {
  if (parts_.path)
    throw UsageError("data parallel: keep('" + name + "') after an optimizer was attached; the state has its places");
  parts_.beginning.kept.keep(std::move(name), memory);
}

std::map<std::string, std::span<std::byte>> EngineState::kept() const { return parts_.beginning.kept.by_name(); }

void EngineState::start_from(std::function<std::uint64_t(state::SharedState&)> restore) const {
  if (parts_.path)
    throw UsageError(
        "data parallel: a state is there already; one from a checkpoint comes before the optimizer is made");
  parts_.beginning.restore = std::move(restore);
}

void EngineState::make_holdable() const {
  if (parts_.path)
    throw UsageError("data parallel: make_holdable() after an optimizer was attached; the state has its buffers");
  parts_.beginning.hold = true;
}

const state::SharedState* EngineState::shared() const { return parts_.path ? &parts_.path->fused.state : nullptr; }

void EngineState::recommit() const {
  parts_.attached("recommit()").editor.modify([] {});
}

std::string EngineState::hash() const { return parts_.attached("state().hash()").editor.hash(); }

EngineDebug Engine::debug() const { return EngineDebug(*parts_); }

std::string EngineDebug::page_size() const {
  return base::page_size(parts_.attached("page_size()").fused.state.read(0));
}

std::string EngineDebug::stores() const {
  const auto stores = parts_.path ? parts_.path->step.stores() : std::nullopt;
  return stores ? optim::to_string(*stores) : "";
}

LoggingData EngineDebug::logging_data() const {
  const StepClock& clock = parts_.clock;
  LoggingData data = clock.told();
  if (parts_.path && parts_.path->fused.lane) data.waves = parts_.path->fused.lane->told();
  for (std::size_t parameter : clock.ready_order())
    data.ready_order.push_back(parts_.view.trainable()[parameter].first);
  if (parts_.classic) {
    data.buckets = parts_.classic->bucket_bytes();
    data.tried = parts_.classic->tried_sizes();
  }
  return data;
}

// The ranks wait for each other where one goes on by what another has done to the file, and tell whether it did.
void Engine::start_timeline(const std::string& path) {
  stop_timeline();
  const comm::Topology& place = group().topology();
  or_abort(group(), [&] {
    if (group().rank() == 0) Timeline::begin(path);
    group().barrier();
    const std::int64_t count = std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
    const auto clocks = group().all_gather(at::full({1}, count, at::kLong));
    const std::chrono::nanoseconds shift(place.node == 0 ? 0 : clocks[0].item<std::int64_t>() - count);
    parts_->clock.set_timeline(std::make_unique<Timeline>(path, group().rank(), shift));
    parts_->timeline_path = path;
    if (parts_->told_ignored) parts_->note_ignored_options();  // else once it is known
    group().barrier();
  });
}

void Engine::stop_timeline() {
  if (parts_->clock.timeline() == nullptr) return;
  parts_->clock.set_timeline(nullptr);
  or_abort(group(), [&] {
    group().barrier();
    if (group().rank() == 0) Timeline::end(parts_->timeline_path);
    group().barrier();
  });
}

std::vector<std::string> EngineDebug::ignored_options() const {
  return parallel::ignored_options(parts_.options, parts_.gradient_path(), parts_.group->topology());
}

}  // namespace lockstep::parallel
