#include "lockstep/parallel/module_view.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <span>
#include <string>

#include "lockstep/amp/bf16_parameters.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/bucket_plan.h"
#include "lockstep/parallel/memory_format.h"
#include "lockstep/state/binding.h"
#include "lockstep/state/hash.h"

namespace lockstep::parallel {
namespace {

at::Device device_of(const NamedTensors& parameters, const NamedTensors& buffers) {
  const NamedTensors& any = parameters.empty() ? buffers : parameters;
  if (any.empty()) return at::kCPU;
  const auto& [first, tensor] = any.front();
  for (const NamedTensors* const named : {&parameters, &buffers})
    for (const auto& [name, other] : *named)
      if (other.device() != tensor.device())
        throw UsageError("'" + name + "' is on " + other.device().str() + " and '" + first + "' on " +
                         tensor.device().str() + "; a model is on one device: module->to(device) before it is wrapped");
  if (tensor.is_meta()) throw UsageError("'" + first + "' is on meta, where tensors have no values");
  return tensor.device();
}

}  // namespace

ModuleView::ModuleView(const torch::nn::Module& module, const DataParallelOptions& options) : module_(module) {
  refuse_unfit_modules(module);
  if (options.channels_last) make_channels_last(module);
  parameters_ = parameters_of(module);
  print_ = print_of_parameters(module);
  trainable_ = parallel::trainable(parameters_);
  frozen_ = parallel::frozen(parameters_);
  buffers_ = buffers_of(module);
  device_ = device_of(parameters_, buffers_);
  bf16_.resize(trainable_.size());
  if (options.amp != Amp::bf16) return;
  const auto copied = amp::bf16_parameters(module);
  for (std::size_t i = 0; i < trainable_.size(); ++i)
    bf16_[i] = copied.contains(trainable_[i].second.unsafeGetTensorImpl());
}

std::vector<state::TensorSpec> ModuleView::trainable_specs() const {
  std::vector<state::TensorSpec> specs = state::specs_of(trainable_, true);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    specs[i].bf16_copy = bf16_[i];
    specs[i].gradients = bf16_[i] ? at::kBFloat16 : at::kFloat;
  }
  return specs;
}

void ModuleView::check_equal_on_all(comm::Group& group, const DataParallelOptions& options) const {
  NamedTensors named = parameters_;
  named.insert(named.end(), buffers_.begin(), buffers_.end());
  std::vector<std::int64_t> prints;
  for (const state::TensorSpec& spec : state::specs_of(named, false))
    prints.push_back(std::int64_t(state::fingerprint(spec)));
  std::vector<std::string> differences;
  for (const auto& [name, tensor] : named)
    differences.push_back("'" + name + "' differs in name, dtype, shape or strides");
  const auto compare = [&](std::int64_t value, const std::string& difference) {
    prints.push_back(value);
    differences.push_back(difference);
  };
  for (const auto& [name, tensor] : parameters_)
    compare(tensor.requires_grad(), "'" + name + "' is trained on one of them and frozen on the other");
  compare(options.shards, "another number of shards");
  compare(std::int64_t(options.verify_replicas_every), "another verify_replicas_every");
  compare(options.find_unused_parameters, "another find_unused_parameters");
  compare(std::int64_t(options.amp), "another mixed precision (amp)");
  compare(options.broadcast_buffers, "another broadcast_buffers");
  compare(options.static_graph, "another static_graph");
  compare(options.skip_all_reduce_unused_params, "another skip_all_reduce_unused_params");
  compare(std::int64_t(options.mixed_precision.reduce_dtype.value_or(at::kFloat)),
          "another mixed_precision.reduce_dtype");
  compare(options.gradient_as_bucket_view, "another gradient_as_bucket_view");
  compare(options.buckets.autotune, "another buckets.autotune");
  const std::vector<std::size_t> capacities = bucket_capacities(options.buckets);
  const auto bytes = std::as_bytes(std::span(capacities));
  compare(std::int64_t(state::hash64({reinterpret_cast<const char*>(bytes.data()), bytes.size()})),
          "other sizes of buckets");

  const auto differ = [&](int rank, const std::string& what) {
    const std::string cause = "rank " + std::to_string(rank) + " has another model than rank 0: " + what;
    group.abort(cause);
    throw Error(cause);
  };
  const auto gather = [&](std::vector<std::int64_t>& values) {
    return group.all_gather(at::from_blob(values.data(), {std::int64_t(values.size())}, at::kLong));
  };
  std::vector<std::int64_t> count{std::int64_t(named.size())};
  const std::vector<at::Tensor> counts = gather(count);
  for (int rank = 1; rank < group.size(); ++rank) {
    const auto theirs = counts[std::size_t(rank)].item<std::int64_t>();
    const auto first = counts[0].item<std::int64_t>();
    if (theirs != first) differ(rank, std::to_string(theirs) + " parameters and buffers, not " + std::to_string(first));
  }
  const std::vector<at::Tensor> all = gather(prints);
  for (int rank = 1; rank < group.size(); ++rank)
    for (std::size_t i = 0; i < prints.size(); ++i)
      if (all[std::size_t(rank)].data_ptr<std::int64_t>()[i] != all[0].data_ptr<std::int64_t>()[i])
        differ(rank, differences[i]);
}

void ModuleView::broadcast(comm::Collectives& group, int root, bool with_buffers) const {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : parameters_) group.broadcast(tensor, root);
  if (!with_buffers) return;
  for (const auto& [name, tensor] : buffers_) group.broadcast(tensor, root);
}

void ModuleView::refuse_new_parameters() const {
  if (print_of_parameters(module_) == print_) return;
  for (const auto& item : module_.named_parameters()) {
    const auto is_it = [&](const auto& known) { return known.second.is_same(item.value()); };
    if (item.value().defined() && std::none_of(parameters_.begin(), parameters_.end(), is_it))
      throw UsageError("data parallel: parameter '" + item.key() +
                       "' was registered after the model was wrapped, so the ranks do not share it; register it before "
                       "DistributedDataParallel(...)");
  }
}

void ModuleView::drop_gradients() const {
  for (const auto& [name, tensor] : trainable_) tensor.mutable_grad().reset();
}

std::map<std::string, at::Tensor> ModuleView::state_dict(const std::vector<at::Tensor>& weights) const {
  std::map<const at::TensorImpl*, at::Tensor> weight_of;
  for (std::size_t i = 0; i < trainable_.size(); ++i)
    weight_of.emplace(trainable_[i].second.unsafeGetTensorImpl(), weights[i]);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : module_.named_parameters()) {
    const auto weight = weight_of.find(item.value().unsafeGetTensorImpl());
    tensors.emplace(item.key(), weight != weight_of.end() ? weight->second : item.value());
  }
  for (const auto& item : module_.named_buffers()) tensors.emplace(item.key(), item.value());
  // An option switched off (BatchNorm without statistics) leaves an undefined entry behind.
  std::erase_if(tensors, [](const auto& item) { return !item.second.defined(); });
  return tensors;
}

}  // namespace lockstep::parallel
