#include "lockstep/horovod/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::horovod {
namespace {

// What goes as one operation: enough that its fixed costs do not matter, little enough to stay near the caches.
constexpr std::size_t kFusedBytes = std::size_t(4) << 20;

void check_passes(int passes) {
  if (passes < 1)
    throw UsageError("DistributedOptimizer: backward_passes_per_step is " + std::to_string(passes) +
                     "; needs 1 or more");
}

bool is_dense(const at::Tensor& gradient) { return gradient.layout() == at::kStrided; }

// From the last parameter on, each until it has kFusedBytes.
std::vector<std::vector<std::size_t>> groups_by_size(const Tensors& parameters) {
  std::vector<std::vector<std::size_t>> groups;
  std::size_t bytes = kFusedBytes;
  for (std::size_t i = parameters.size(); i-- > 0; bytes += parameters[i].nbytes()) {
    if (bytes >= kFusedBytes) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().push_back(i);
  }
  return groups;
}

// The first `more` ones have one more, as Horovod deals them out.
std::vector<std::vector<std::size_t>> equal_groups(std::size_t parameters, std::size_t number) {
  std::vector<std::vector<std::size_t>> groups(std::min(number, parameters));
  std::size_t next = 0;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = 0; i < parameters / groups.size() + (g < parameters % groups.size() ? 1 : 0); ++i)
      groups[g].push_back(next++);
  return groups;
}

std::vector<std::vector<std::size_t>> given_groups(const Tensors& parameters, const std::vector<Tensors>& given) {
  std::vector<std::vector<std::size_t>> groups;
  std::vector<bool> grouped(parameters.size());
  for (const Tensors& some : given) {
    groups.emplace_back();
    for (const at::Tensor& one : some) {
      const auto found = std::find_if(parameters.begin(), parameters.end(),
                                      [&](const at::Tensor& parameter) { return parameter.is_same(one); });
      const auto place = std::size_t(found - parameters.begin());
      if (found == parameters.end() || grouped[place])
        throw UsageError("DistributedOptimizer: group " + std::to_string(groups.size() - 1) +
                         " of groups has a tensor " +
                         (found == parameters.end() ? "that is no trained parameter of the optimizer"
                                                    : "that is in a group already"));
      grouped[place] = true;
      groups.back().push_back(place);
    }
    if (some.empty()) groups.pop_back();
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!grouped[i]) groups.push_back({i});
  return groups;
}

}  // namespace

struct DistributedOptimizer::Passes {
  int allowed = 1;
  std::vector<std::string> names;
  std::vector<int> done;
  std::function<void()> accumulated;  ///< none: the optimizer has gone

  bool any() const {
    return std::any_of(done.begin(), done.end(), [](int passes) { return passes > 0; });
  }
  void count(std::size_t parameter) {
    if (done[parameter] == allowed)
      throw UsageError("DistributedOptimizer: rank " + std::to_string(rank()) + " computes the gradient of " +
                       names[parameter] + " more than backward_passes_per_step (" + std::to_string(allowed) +
                       ") times before step(); a larger number adds gradients up");
    ++done[parameter];
  }
};

// Behind what accumulates a gradient into .grad().
struct DistributedOptimizer::Hook final : torch::autograd::FunctionPostHook {
  explicit Hook(std::shared_ptr<Passes> the_passes) : passes(std::move(the_passes)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    if (passes->accumulated) passes->accumulated();
    return outputs;
  }
  std::shared_ptr<Passes> passes;
};

DistributedOptimizer::DistributedOptimizer(torch::optim::Optimizer& optimizer, DistributedOptimizerOptions options)
    : optimizer_(optimizer), options_(std::move(options)), passes_(std::make_shared<Passes>()) {
  check_passes(options_.backward_passes_per_step);
  if (options_.op != Op::Average && options_.op != Op::Sum && options_.op != Op::Adasum)
    throw UsageError("DistributedOptimizer: op is Average, Sum or Adasum");
  if (options_.op != Op::Average && options_.gradient_predivide_factor != 1)
    throw UsageError("DistributedOptimizer: gradient_predivide_factor needs op Average");
  if (!(options_.gradient_predivide_factor > 0))
    throw UsageError("DistributedOptimizer: gradient_predivide_factor is " +
                     std::to_string(options_.gradient_predivide_factor) + "; needs more than 0");
  if (options_.num_groups < 0 || (options_.num_groups > 0 && !options_.groups.empty()))
    throw UsageError("DistributedOptimizer: num_groups is " + std::to_string(options_.num_groups) +
                     (options_.num_groups < 0 ? "; needs 0 or more" : ", and groups are given; give one of them"));
  (void)options_.process_set.size();  // init() has been called
  passes_->allowed = options_.backward_passes_per_step;
  for (const torch::optim::OptimizerParamGroup& group : optimizer_.param_groups())
    for (const at::Tensor& parameter : group.params())
      if (parameter.requires_grad()) parameters_.push_back(parameter);
  name_parameters();
  make_groups();
  count_passes();
}

// Gradients come from the last parameter on, more or less.
void DistributedOptimizer::make_groups() {
  groups_ = !options_.groups.empty()  ? given_groups(parameters_, options_.groups)
            : options_.num_groups > 0 ? equal_groups(parameters_.size(), std::size_t(options_.num_groups))
                                      : groups_by_size(parameters_);
  const auto last = [](const Group& group) { return *std::max_element(group.begin(), group.end()); };
  std::sort(groups_.begin(), groups_.end(), [&](const Group& a, const Group& b) { return last(a) > last(b); });
}

void DistributedOptimizer::name_parameters() {
  const auto& named = options_.named_parameters;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    std::string name = named.is_empty() ? "parameter " + std::to_string(i) : "";
    for (const auto& item : named)
      if (item.value().is_same(parameters_[i])) name = item.key();
    if (name.empty())
      throw UsageError("DistributedOptimizer: named_parameters lacks parameter " + std::to_string(i) +
                       " of the optimizer; all or none have names");
    passes_->names.push_back(std::move(name));
  }
  passes_->done.assign(parameters_.size(), 0);
}

void DistributedOptimizer::count_passes() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    hooks_.push_back(parameters_[i].register_hook([passes = passes_, i](const at::Tensor&) { passes->count(i); }));
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters_[i]));
    accumulators_.back()->add_post_hook(std::make_unique<Hook>(passes_));
  }
  if (!is_adasum() && options_.process_set.included()) passes_->accumulated = [this] { send_ready(); };
}

DistributedOptimizer::~DistributedOptimizer() {
  passes_->accumulated = nullptr;  // autograd has no way to take such a hook off
  for (std::size_t i = 0; i < hooks_.size(); ++i) parameters_[i].remove_hook(hooks_[i]);
}

AllreduceOptions DistributedOptimizer::how() const {
  const bool average = options_.op == Op::Average;
  const double factor = options_.gradient_predivide_factor;
  return {.op = options_.op,
          .compression = options_.compression,
          .prescale_factor = average ? 1 / factor : 1,
          .postscale_factor = average ? factor : 1,
          .process_set = options_.process_set};
}

// What cannot be sent waits for synchronize(), which says so.
void DistributedOptimizer::send_ready() {
  const auto is_ready = [&](std::size_t i) {
    const at::Tensor& gradient = parameters_[i].grad();
    return passes_->done[i] == passes_->allowed && gradient.defined() &&
           (is_dense(gradient) || options_.sparse_as_dense);
  };
  for (; next_ < groups_.size(); ++next_) {
    const Group& group = groups_[next_];
    if (!std::all_of(group.begin(), group.end(), is_ready)) return;
    send(group);
  }
}

void DistributedOptimizer::send(const Group& group) {
  const at::NoGradGuard no_grad;
  Tensors gradients;
  for (const std::size_t i : group) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(parameters_[i]);
    if (!is_dense(gradient)) gradient = gradient.to_dense();
    gradients.push_back(gradient.detach());
  }
  sent_.push_back(grouped_allreduce_async_(gradients, how()));
}

void DistributedOptimizer::synchronize() {
  if (is_adasum()) return;
  if (options_.process_set.included()) {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (const at::Tensor& gradient = parameters_[i].grad();
          gradient.defined() && !is_dense(gradient) && !options_.sparse_as_dense)
        throw UsageError("DistributedOptimizer: the gradient of " + passes_->names[i] +
                         " is sparse; needs a dense one, or sparse_as_dense");
    for (; next_ < groups_.size(); ++next_) send(groups_[next_]);
    next_ = 0;
    for (const Handle<Tensors>& handle : std::exchange(sent_, {})) (void)horovod::synchronize(handle);
  }
  std::fill(passes_->done.begin(), passes_->done.end(), 0);
  synchronized_ = true;
}

void DistributedOptimizer::step() {
  if (is_adasum()) return step_by_adasum();
  if (skip_ && !synchronized_)
    throw UsageError("DistributedOptimizer: step() under skip_synchronize() needs synchronize() before it");
  if (!skip_ && synchronized_)
    throw UsageError(
        "DistributedOptimizer: step() behind synchronize() would reduce gradients twice; call it under "
        "skip_synchronize()");
  if (!skip_) synchronize();
  synchronized_ = false;
  optimizer_.step();
}

void DistributedOptimizer::step_by_adasum() {
  if (!options_.process_set.included()) {
    optimizer_.step();
  } else {
    const at::NoGradGuard no_grad;
    Tensors before, changes;
    for (const at::Tensor& parameter : parameters_) before.push_back(parameter.detach().clone());
    optimizer_.step();
    for (std::size_t i = 0; i < parameters_.size(); ++i) changes.push_back(parameters_[i].detach() - before[i]);
    (void)grouped_allreduce_(changes, how());
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].copy_(before[i] + changes[i]);
  }
  std::fill(passes_->done.begin(), passes_->done.end(), 0);
}

void DistributedOptimizer::zero_grad(bool set_to_none) {
  if (passes_->any())
    throw UsageError(
        "DistributedOptimizer: zero_grad() between backward() and step() or synchronize() would lose gradients");
  synchronized_ = false;
  optimizer_.zero_grad(set_to_none);
}

DistributedOptimizer::SkipSynchronize DistributedOptimizer::skip_synchronize() {
  if (is_adasum()) throw UsageError("DistributedOptimizer: with Adasum there is nothing that step() could skip");
  return SkipSynchronize(*this);
}

std::vector<torch::optim::OptimizerParamGroup>& DistributedOptimizer::param_groups() {
  if (passes_->any())
    throw UsageError(
        "DistributedOptimizer: param_groups() between backward() and step(), while gradients are on their way; call "
        "synchronize() first, and step() under skip_synchronize()");
  return optimizer_.param_groups();
}

void DistributedOptimizer::set_backward_passes_per_step(int passes) {
  check_passes(passes);
  if (passes_->any() || !sent_.empty())
    throw UsageError(
        "DistributedOptimizer: set_backward_passes_per_step() between backward() and step(), while gradients are on "
        "their way; call it behind step()");
  passes_->allowed = passes;
  std::fill(passes_->done.begin(), passes_->done.end(), 0);
}

}  // namespace lockstep::horovod
