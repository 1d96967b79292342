#include "lockstep/parallel/sync_batch_norm.h"

#include <ATen/ops/batch_norm_native.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <ostream>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/normalize_over_ranks.h"

namespace lockstep::parallel {
namespace {

namespace nn = torch::nn;

// A BatchNorm that was converted. Neither its module nor the group is kept alive by it.
struct Converted {
  std::weak_ptr<nn::Module> module;
  std::weak_ptr<comm::Group> group;
  std::int64_t channels = 0;
};

// Which tensors are a converted layer's. Used by all threads of the process, of which each may be a rank with a model
// of its own.
class ConvertedLayers {
 public:
  using Tensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;

  void add(const std::vector<at::Tensor>& tensors, const Converted& layer) {
    const std::unique_lock lock(mutex_);
    std::erase_if(layers_, [](const auto& item) { return item.second.layer.module.expired(); });
    for (const at::Tensor& tensor : tensors)
      layers_.insert_or_assign(tensor.unsafeGetTensorImpl(), Entry{Tensor(tensor.getIntrusivePtr()), layer});
    any_ = true;
  }

  std::optional<Converted> find(const at::TensorImpl* tensor) const {
    if (!any_.load(std::memory_order_relaxed)) return {};
    const std::shared_lock lock(mutex_);
    const auto found = layers_.find(tensor);
    if (found == layers_.end()) return {};
    return found->second.layer;
  }

 private:
  struct Entry {
    Tensor keeps_address;  ///< no other tensor gets it as long as this is here
    Converted layer;
  };
  mutable std::shared_mutex mutex_;
  std::unordered_map<const at::TensorImpl*, Entry> layers_;
  std::atomic<bool> any_ = false;
};

ConvertedLayers& converted_layers() {
  static ConvertedLayers layers;
  return layers;
}

std::vector<at::Tensor> own_tensors(const nn::Module& module) {
  std::vector<at::Tensor> found;
  for (const std::vector<at::Tensor>& some : {module.parameters(/*recurse=*/false), module.buffers(/*recurse=*/false)})
    for (const at::Tensor& tensor : some)
      if (tensor.defined()) found.push_back(tensor);
  return found;
}

std::optional<std::int64_t> batch_norm_channels(const nn::Module& module) {
  if (const auto* one = dynamic_cast<const nn::BatchNorm1dImpl*>(&module)) return one->options.num_features();
  if (const auto* two = dynamic_cast<const nn::BatchNorm2dImpl*>(&module)) return two->options.num_features();
  if (const auto* three = dynamic_cast<const nn::BatchNorm3dImpl*>(&module)) return three->options.num_features();
  return {};
}

// Null: it normalises over no group, or that has gone.
std::shared_ptr<comm::Group> group_of_layer(const nn::Module& module) {
  if (const auto* const layer = dynamic_cast<const SyncBatchNormImpl*>(&module)) return layer->group();
  for (const at::Tensor& tensor : own_tensors(module))
    if (const auto layer = converted_layers().find(tensor.unsafeGetTensorImpl()))
      if (layer->module.lock().get() == &module) return layer->group.lock();
  return nullptr;
}

std::string in_words(const std::string& name) { return name.empty() ? "the module" : "module '" + name + "'"; }

at::Tensor batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
                      const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps,
                      bool cudnn_enabled) {
  const auto plain = [&] {
    return at::native::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
                                  cudnn_enabled);
  };
  if (!training) return plain();
  std::optional<Converted> layer;
  for (const auto* tensor : {&weight, &bias, &running_mean, &running_var})
    if (!layer && tensor->has_value() && (*tensor)->defined())
      layer = converted_layers().find((*tensor)->unsafeGetTensorImpl());
  const std::shared_ptr<nn::Module> module = layer ? layer->module.lock() : nullptr;
  if (!module || !module->is_training()) return plain();  // without running statistics evaluation comes here too
  const std::shared_ptr<comm::Group> group = layer->group.lock();
  if (!group)
    throw UsageError(
        "a BatchNorm that convert_sync_batchnorm() was given is trained after its group has gone; keep the "
        "group as long as the model");
  if (group->size() == 1) return plain();
  return normalize_over_ranks(group, layer->channels, input,
                              {weight.value_or(at::Tensor()), bias.value_or(at::Tensor()),
                               running_mean.value_or(at::Tensor()), running_var.value_or(at::Tensor()), momentum, eps});
}

}  // namespace

// It is made of other operators, so autograd has no kernel of its own for it that this would replace. The second of
// each pair is for inference mode. Of CUDA's this needs no part of libtorch's but the name of the key.
TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) { library.impl("batch_norm", batch_norm); }
TORCH_LIBRARY_IMPL(aten, CPU, library) { library.impl("batch_norm", batch_norm); }
TORCH_LIBRARY_IMPL(aten, AutogradCUDA, library) { library.impl("batch_norm", batch_norm); }
TORCH_LIBRARY_IMPL(aten, CUDA, library) { library.impl("batch_norm", batch_norm); }
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) { library.impl("batch_norm", batch_norm); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { library.impl("batch_norm", batch_norm); }

SyncBatchNormImpl::SyncBatchNormImpl(const nn::BatchNormOptions& options, std::shared_ptr<comm::Group> group)
    : NormImplBase(options), group_(std::move(group)) {
  if (!group_) throw UsageError("SyncBatchNorm: no group given");
}

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  TORCH_CHECK_VALUE(input.dim() >= 2, "expected at least 2D input (got ", input.dim(), "D input)");
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  const bool together = is_training() && group_->size() > 1;
  if (!together) _check_input_dim(input);
  double momentum = options.momentum().value_or(0);
  if (is_training() && num_batches_tracked.defined()) {
    num_batches_tracked += 1;
    if (!options.momentum()) momentum = 1.0 / num_batches_tracked.item<double>();
  }
  if (together)
    return normalize_over_ranks(group_, options.num_features(), input,
                                {weight, bias, running_mean, running_var, momentum, options.eps()});
  return nn::functional::detail::batch_norm(input, running_mean, running_var, weight, bias,
                                            is_training() || !options.track_running_stats(), momentum, options.eps());
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "lockstep::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", momentum=";
  if (options.momentum())
    stream << *options.momentum();
  else
    stream << "None";
  stream << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats() << ")";
}

void detail::convert_batch_norms(nn::Module& module, const std::shared_ptr<comm::Group>& group) {
  if (!group) throw UsageError("convert_sync_batchnorm: no group given");
  for (const auto& item : module.named_modules()) {
    const std::optional<std::int64_t> channels = batch_norm_channels(*item.value());
    if (!channels) continue;
    const std::vector<at::Tensor> tensors = own_tensors(*item.value());
    if (tensors.empty())
      throw UsageError("convert_sync_batchnorm: " + in_words(item.key()) +
                       " is a BatchNorm with neither weights nor running statistics, by which it would be known; put a "
                       "lockstep::SyncBatchNorm in its place");
    converted_layers().add(tensors, {item.value(), group, *channels});
  }
}

std::string synchronized_layer(const nn::Module& module, const comm::Group* besides) {
  const auto is_one = [&](const nn::Module& layer) {
    const std::shared_ptr<comm::Group> group = group_of_layer(layer);
    return group != nullptr && group.get() != besides;
  };
  for (const auto& item : module.named_modules("", /*include_self=*/false))
    if (is_one(*item.value())) return item.key();
  return is_one(module) ? "the module itself" : "";
}

}  // namespace lockstep::parallel
