#include "lockstep/parallel/replica_tensors.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

using Names = torch::OrderedDict<std::string, at::Tensor>;

void check_same(const Names& source, const Names& replica, const std::string& which, at::Device device) {
  if (source.size() != replica.size())
    throw UsageError("DataParallel: " + which + " has " + std::to_string(replica.size()) +
                     " parameters or buffers, the model " + std::to_string(source.size()));
  for (const auto& item : source) {
    const at::Tensor* const found = replica.find(item.key());
    if (found == nullptr || found->defined() != item.value().defined())
      throw UsageError("DataParallel: " + which + " has no '" + item.key() + "', but the model has");
    if (found->defined() && (found->sizes() != item.value().sizes() || found->device() != device))
      throw UsageError("DataParallel: '" + item.key() + "' of " + which + " is " + c10::str(found->sizes()) + " on " +
                       found->device().str() + ", must be " + c10::str(item.value().sizes()) + " on " + device.str());
  }
}

}  // namespace

ReplicaTensors::ReplicaTensors(std::shared_ptr<torch::nn::Module> source, Modules replicas,
                               std::vector<at::Device> devices)
    : source_(std::move(source)),
      replicas_(std::move(replicas)),
      devices_(std::move(devices)),
      trained_of_(replicas_.size()) {
  for (std::size_t i = 0; i < replicas_.size(); ++i) check_like_source(i);
}

void ReplicaTensors::check_like_source(std::size_t replica) const {
  const std::string which = "replica " + std::to_string(replica);
  const torch::nn::Module& module = *replicas_[replica];
  check_same(source_->named_parameters(), module.named_parameters(), which, devices_[replica]);
  check_same(source_->named_buffers(), module.named_buffers(), which, devices_[replica]);
  if (module.modules(/*include_self=*/false).size() != source_->modules(/*include_self=*/false).size())
    throw UsageError("DataParallel: " + which + " has other submodules than the model");
}

// The model is the user's: a layer may have been added or replaced since.
void check_unchanged(const torch::nn::Module& source, const torch::nn::Module& replica) {
  const auto names = [](const torch::nn::Module& module) {
    std::vector<std::string> found = module.named_parameters().keys();
    for (const std::string& name : module.named_buffers().keys()) found.push_back(name);
    for (const auto& item : module.named_modules("", /*include_self=*/true)) {
      found.push_back(item.key());
      found.push_back(item.value()->name());
    }
    return found;
  };
  if (names(source) != names(replica))
    throw UsageError(
        "DataParallel: the model's layers, parameters or buffers are others than when it was wrapped; make a new "
        "DataParallel of it");
}

// set_data() leaves version counters alone: to a graph that is still to run backward, the values are what they were.
// That the model's own were not edited since is checked there, too (data_parallel.cpp).
void ReplicaTensors::refresh(int count) {
  const c10::InferenceMode no_inference(false);  // what replicas keep must be good for training, too
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < std::size_t(count); ++i) check_unchanged(*source_, *replicas_[i]);
  const auto each = [](const Names& ours, const Names& theirs, const auto& body) {
    for (const auto& item : ours)
      if (item.value().defined()) body(item.value(), *theirs.find(item.key()));
  };
  trained_.clear();
  const Names parameters = source_->named_parameters();
  for (const auto& item : parameters)
    if (item.value().defined() && item.value().requires_grad()) trained_.push_back(item.value());
  const auto modes = source_->modules();
  for (std::size_t i = 0; i < std::size_t(count); ++i) {
    trained_of_[i].clear();
    // A replica need not be tied where the model is: clone() unties what its constructor has tied.
    std::set<std::pair<const at::TensorImpl*, const at::TensorImpl*>> seen;
    each(parameters, replicas_[i]->named_parameters(), [&](const at::Tensor& from, const at::Tensor& to) {
      if (!to.is_leaf()) torch::autograd::impl::set_gradient_edge(to, {});  // that of the last pass (data_parallel.cpp)
      to.set_data(from.detach().to(devices_[i]));
      to.set_requires_grad(from.requires_grad());
      if (!to.requires_grad()) return;
      const bool is_new = seen.emplace(from.unsafeGetTensorImpl(), to.unsafeGetTensorImpl()).second;
      trained_of_[i].push_back(is_new ? to : at::Tensor());
    });
    each(source_->named_buffers(), replicas_[i]->named_buffers(), [&](const at::Tensor& from, const at::Tensor& to) {
      to.set_data(i == 0 ? from.detach().to(devices_[i])
                         : from.detach().to(devices_[i], from.scalar_type(), false, true));
    });
    const auto modules = replicas_[i]->modules();
    for (std::size_t m = 0; m < modes.size(); ++m) modules[m]->train(modes[m]->is_training());
  }
}

}  // namespace lockstep::parallel
