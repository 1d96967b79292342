#include "lockstep/parallel/data_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <c10/core/StreamGuard.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/custom_class.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/tree.h"
#include "lockstep/parallel/differentiable_once.h"
#include "lockstep/parallel/sync_batch_norm.h"

namespace lockstep::parallel::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct PassHolder : torch::CustomClassHolder {
  explicit PassHolder(std::shared_ptr<ReplicaPass> the_pass) : pass(std::move(the_pass)) {}
  std::shared_ptr<ReplicaPass> pass;
};

at::Tensor sum_or_none(const at::Tensor& a, const at::Tensor& b) { return !a.defined() ? b : !b.defined() ? a : a + b; }

// So that base::tree_sum adds gradients of which some are none.
struct Addend {
  at::Tensor tensor;
  friend Addend operator+(const Addend& a, const Addend& b) { return {sum_or_none(a.tensor, b.tensor)}; }
};

// From all replicas' chunks and the model's parameters to the joined outputs. The replicas have graphs of their own,
// between those that forward made of their inputs and their outputs.
class ReplicasFunction : public torch::autograd::Function<ReplicasFunction> {
 public:
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const std::vector<std::vector<at::Tensor>>& outputs, variable_list whole,
                               const c10::intrusive_ptr<PassHolder>& holder) {
    context->save_for_backward(inputs.vec());
    context->saved_data["pass"] = c10::IValue::make_capsule(holder);
    context->set_materialize_grads(false);
    variable_list defined, constant;
    for (std::size_t k = 0; k < whole.size(); ++k) {
      if (!whole[k].defined()) continue;
      defined.push_back(whole[k]);
      bool differentiable = false;
      for (const auto& of_replica : outputs) differentiable |= of_replica[k].requires_grad();
      if (!differentiable) constant.push_back(whole[k]);
    }
    context->mark_non_differentiable(constant);
    return defined;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list inputs = context->get_saved_variables();  // an error when one was edited since
    const auto holder = c10::static_intrusive_pointer_cast<PassHolder>(context->saved_data["pass"].toCapsule());
    ReplicaPass& pass = *holder->pass;
    const std::size_t chunks = pass.inputs(0).size(), replicas = std::size_t(pass.count());
    variable_list found;
    {
      const at::NoGradGuard no_grad;
      const auto of_replicas = pass.backward(gradients, torch::autograd::get_current_graph_task_keep_graph());
      for (std::size_t i = 0; i < replicas; ++i)
        for (std::size_t k = 0; k < chunks; ++k)
          if (pass.inputs(int(i))[k].defined()) found.push_back(of_replicas[i][k]);
      for (std::size_t p = chunks; p < of_replicas.front().size(); ++p)
        found.push_back(base::tree_sum(0, int(replicas), [&](int i) {
                          const at::Tensor& one = of_replicas[std::size_t(i)][p];
                          return Addend{one.defined() ? one.to(pass.first_device()) : one};
                        }).tensor);
    }
    variable_list of = inputs;
    of.insert(of.end(), gradients.begin(), gradients.end());
    found.resize(inputs.size() + 3);  // forward's other arguments
    return differentiable_once(std::move(found), of, "DataParallel: its gradient cannot be differentiated again");
  }
};

// Hands gradients of a copy on to the original.
struct ToOriginal : torch::autograd::Node {
  explicit ToOriginal(at::Device the_device) : device(the_device) {}
  variable_list apply(variable_list&& gradients) override {
    for (at::Tensor& gradient : gradients)
      if (gradient.defined()) gradient = gradient.to(device);
    return std::move(gradients);
  }
  at::Device device;
};

// From the replicas' copies of a parameter to the parameter.
struct FromReplicas : torch::autograd::Node {
  FromReplicas(const at::Tensor& parameter, std::vector<c10::Stream> the_streams)
      : saved(parameter, /*is_output=*/false), device(parameter.device()), streams(std::move(the_streams)) {}
  variable_list apply(variable_list&& gradients) override {
    (void)saved.unpack();  // an error when it was edited since
    const c10::MultiStreamGuard on_streams(streams);
    return {base::tree_sum(0, int(gradients.size()), [&](int i) {
              const at::Tensor& one = gradients[std::size_t(i)];
              return Addend{one.defined() ? one.to(device) : one};
            }).tensor};
  }
  void release_variables() override { saved.reset_data(); }

  torch::autograd::SavedVariable saved;
  at::Device device;
  std::vector<c10::Stream> streams;  ///< of the devices, in which the replicas' work is queued
};

// From now on gradients of the copies, first by replica, go to the parameters. Of a tied parameter, there may be none.
void lead_gradients(const variable_list& parameters, const std::vector<variable_list>& copies,
                    const std::vector<c10::Stream>& streams) {
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const auto has_copy = [p](const variable_list& of_replica) { return of_replica[p].defined(); };
    if (std::none_of(copies.begin(), copies.end(), has_copy)) continue;
    const auto node =
        std::shared_ptr<FromReplicas>(new FromReplicas(parameters[p], streams), torch::autograd::deleteNode);
    node->set_next_edges({torch::autograd::impl::gradient_edge(parameters[p])});
    for (const variable_list& of_replica : copies) {
      if (!has_copy(of_replica)) {
        node->add_input_metadata(torch::autograd::Node::undefined_input());
        continue;
      }
      const std::uint32_t place = node->add_input_metadata(of_replica[p]);
      torch::autograd::impl::set_gradient_edge(of_replica[p], {node, place});
    }
  }
}

bool any_on_a_device(const std::vector<at::Device>& devices) {
  return std::any_of(devices.begin(), devices.end(), [](const at::Device& device) { return !device.is_cpu(); });
}

std::string at_device(const std::string& name, const at::Tensor& tensor) {
  return "'" + name + "' is on " + tensor.device().str();
}

}  // namespace

std::vector<at::Tensor> copy_of(const std::vector<at::Tensor*>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor* tensor : tensors) copies.push_back(*tensor);
  return copies;
}

void set_all(const std::vector<at::Tensor*>& tensors, const std::vector<at::Tensor>& to) {
  for (std::size_t i = 0; i < tensors.size(); ++i) *tensors[i] = to[i];
}

std::vector<std::vector<at::Tensor>> chunks_of(const std::vector<at::Tensor*>& tensors,
                                               const std::vector<at::Device>& devices, std::int64_t dim) {
  if (devices.empty()) throw UsageError("scatter: no devices given");
  std::optional<std::size_t> count;
  std::vector<std::vector<at::Tensor>> by_tensor;
  for (const at::Tensor* tensor : tensors) {
    by_tensor.emplace_back();
    if (!tensor->defined()) continue;
    if (dim < -tensor->dim() || dim >= tensor->dim())
      throw UsageError("scatter: a tensor of " + c10::str(tensor->sizes()) + " has no dimension " +
                       std::to_string(dim) + " to be cut along");
    by_tensor.back() = tensor->size(dim) == 0 ? std::vector{*tensor} : tensor->chunk(std::int64_t(devices.size()), dim);
    if (count && *count != by_tensor.back().size())
      throw UsageError("scatter: a tensor of " + c10::str(tensor->sizes()) + " comes to " +
                       std::to_string(by_tensor.back().size()) + " chunks, one before it to " + std::to_string(*count) +
                       "; all must have the same size in dimension " + std::to_string(dim));
    count = by_tensor.back().size();
  }
  std::vector<std::vector<at::Tensor>> by_chunk(count.value_or(1));
  for (std::size_t i = 0; i < by_chunk.size(); ++i)
    for (const auto& chunks : by_tensor)
      by_chunk[i].push_back(chunks.empty() ? at::Tensor() : chunks[i].to(devices[i]));
  return by_chunk;
}

std::vector<at::Tensor> joined(const std::vector<std::vector<at::Tensor>>& parts, at::Device device, std::int64_t dim) {
  if (parts.empty()) throw UsageError("gather: nothing given");
  std::vector<at::Tensor> whole;
  for (std::size_t k = 0; k < parts.front().size(); ++k) {
    std::vector<at::Tensor> of_all;
    for (const auto& part : parts) {
      if (part.size() != parts.front().size() || part[k].defined() != parts.front()[k].defined())
        throw UsageError("gather: outputs of replicas have other numbers of tensors");
      if (part[k].defined()) of_all.push_back(part[k].to(device));
    }
    const bool numbers = !of_all.empty() && of_all.front().dim() == 0;
    whole.push_back(of_all.empty() ? at::Tensor() : numbers ? at::stack(of_all) : at::cat(of_all, dim));
  }
  return whole;
}

ReplicaPass::ReplicaPass(std::shared_ptr<ReplicaThreads> threads, std::shared_ptr<ReplicaTensors> replicas,
                         ReplicaOptions options, std::vector<std::vector<at::Tensor>> chunks,
                         std::vector<at::Device> devices)
    : threads_(std::move(threads)),
      replicas_(std::move(replicas)),
      options_(options),
      devices_(std::move(devices)),
      one_graph_(any_on_a_device(devices_)),
      chunks_(std::move(chunks)),
      outputs_(chunks_.size()),
      trained_(replicas_->trained()) {
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    inputs_.emplace_back();
    for (const at::Tensor& chunk : chunks_[i])
      inputs_.back().push_back(one_graph_ || !chunk.defined() ? chunk
                                                              : chunk.detach().requires_grad_(chunk.requires_grad()));
    weights_.push_back(replicas_->trained(int(i)));
  }
  if (one_graph_ && at::GradMode::is_enabled()) lead_gradients(trained_, weights_, current_streams(devices_));
}

std::vector<at::Tensor> ReplicaPass::joined_outputs(const std::shared_ptr<ReplicaPass>& self) const {
  if (one_graph_) return joined(outputs_, options_.output_device.value_or(devices_.front()), options_.dim);
  std::vector<at::Tensor> whole;
  {
    const at::NoGradGuard no_grad;
    whole = joined(outputs_, options_.output_device.value_or(devices_.front()), options_.dim);
  }
  if (!at::GradMode::is_enabled()) return whole;
  variable_list from;  // autograd takes no undefined ones
  for (const auto& chunk : chunks_)
    for (const at::Tensor& tensor : chunk)
      if (tensor.defined()) from.push_back(tensor);
  from.insert(from.end(), trained_.begin(), trained_.end());
  const variable_list with_graph =
      ReplicasFunction::apply(at::TensorList(from), outputs_, whole, c10::make_intrusive<PassHolder>(self));
  std::size_t next = 0;
  for (at::Tensor& tensor : whole)
    if (tensor.defined()) tensor = with_graph[next++];
  return whole;
}

at::Tensor ReplicaPass::part_of(const at::Tensor& gradient, int i, std::size_t output) const {
  const auto me = std::size_t(i);
  if (outputs_[me][output].dim() == 0) return gradient[i].to(devices_[me]);
  std::int64_t first = 0;
  for (std::size_t peer = 0; peer < me; ++peer) first += outputs_[peer][output].size(options_.dim);
  return gradient.narrow(options_.dim, first, outputs_[me][output].size(options_.dim)).to(devices_[me]);
}

std::vector<at::Tensor> ReplicaPass::gradients_of(int i, const std::vector<at::Tensor>& gradients,
                                                  bool keep_graph) const {
  const auto me = std::size_t(i);
  variable_list outputs, of_outputs, wanted;
  for (std::size_t k = 0, next = 0; k < outputs_[me].size(); ++k) {
    const at::Tensor& output = outputs_[me][k];
    if (!output.defined()) continue;
    const at::Tensor& gradient = gradients[next++];
    if (!gradient.defined() || !output.requires_grad()) continue;
    outputs.push_back(output);
    of_outputs.push_back(part_of(gradient, i, k));
  }
  variable_list all = inputs_[me];
  all.insert(all.end(), weights_[me].begin(), weights_[me].end());
  for (const at::Tensor& tensor : all)
    if (tensor.defined() && tensor.requires_grad()) wanted.push_back(tensor);
  variable_list found(all.size());
  if (outputs.empty() || wanted.empty()) return found;
  variable_list gotten = torch::autograd::grad(outputs, wanted, of_outputs, keep_graph, /*create_graph=*/false,
                                               /*allow_unused=*/true);
  for (std::size_t k = 0, next = 0; k < all.size(); ++k)
    if (all[k].defined() && all[k].requires_grad()) found[k] = std::move(gotten[next++]);
  return found;
}

std::vector<std::vector<at::Tensor>> ReplicaPass::backward(const std::vector<at::Tensor>& gradients, bool keep_graph) {
  std::vector<std::vector<at::Tensor>> found(chunks_.size());
  threads_->run(count(), [&](int i) { found[std::size_t(i)] = gradients_of(i, gradients, keep_graph); });
  return found;
}

std::shared_ptr<torch::nn::Module> clone_of(const torch::nn::Module& module, at::Device device) {
  try {
    return module.clone(device);
  } catch (const c10::Error&) {
    throw UsageError("DataParallel: module '" + module.name() +
                     "' cannot be copied: derive it and its submodules from torch::nn::Cloneable, or give a function "
                     "that makes replicas");
  }
}

at::Device device_of(const torch::nn::Module& module) {
  for (const auto& tensors : {module.parameters(), module.buffers()})
    for (const at::Tensor& tensor : tensors)
      if (tensor.defined()) return tensor.device();
  return at::kCPU;
}

void check_devices(const torch::nn::Module& module, const std::vector<at::Device>& devices) {
  if (devices.empty()) throw UsageError("DataParallel: no devices given");
  const std::string wanted = ", must be on the first device, " + devices.front().str();
  for (const auto& tensors : {module.named_parameters(), module.named_buffers()})
    for (const auto& item : tensors)
      if (item.value().defined() && item.value().device() != devices.front())
        throw UsageError("DataParallel: " + at_device(item.key(), item.value()) + wanted);
  if (const std::string layer = synchronized_layer(module); !layer.empty())
    throw UsageError("DataParallel: the model has a SyncBatchNorm ('" + layer +
                     "'), which is for the processes of DistributedDataParallel");
}

void join_gradients(const torch::nn::Module& module, const torch::nn::Module& replica) {
  const auto copies = replica.named_parameters();
  for (const auto& item : module.named_parameters()) {
    if (!item.value().defined() || !item.value().requires_grad()) continue;
    const auto node = std::shared_ptr<ToOriginal>(new ToOriginal(item.value().device()), torch::autograd::deleteNode);
    node->set_next_edges({torch::autograd::impl::gradient_edge(item.value())});
    node->add_input_metadata(copies[item.key()]);
    torch::autograd::impl::set_gradient_edge(copies[item.key()], {node, 0});
  }
}

}  // namespace lockstep::parallel::detail
