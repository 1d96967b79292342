#pragma once

// One process, several replicas of a model: the batch is cut, each replica computes its chunk in a thread of its own,
// the outputs come back as one. torch.nn.DataParallel, on any devices; `cpu`, or a GPU, may be named several times.
//
//   lockstep::DataParallel model(net, {at::kCPU, at::kCPU});
//   auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
//   loss.backward();        // gradients are in net's own .grad, so any torch::optim optimizer of net's parameters does
//   optimizer.step();
//
// Inputs and outputs are tensors, or std::optional, pair, tuple, array, vector and map of such (nested_tensors.h).
// Tensors are cut along dimension `dim` as at::chunk does, so the last chunk may be smaller, and fewer samples than
// devices use fewer replicas; all tensors must come to as many chunks. What is no tensor goes to each replica as it is,
// and comes from the first. Outputs are joined along `dim`, numbers (of no dimension) to a vector.
//
// Replicas are made once, by clone() or by a function. Before each forward they take over the model's parameters,
// without a copy on its own device, its buffers and modes. Replica 0's buffers are the model's: BatchNorm's statistics
// are those of the first chunk. Only parameters and inputs get gradients: a replica's forward should use no other
// tensor that wants some. Gradients of replicas are added along a fixed tree, so equal outputs have the same bits in
// every run.
//
// On the replicas' threads hold grad mode, inference mode and autocast of the caller. Each computes with as many
// threads as at::set_num_threads has told the process: cores / replicas is a good number. Random numbers on the CPU
// come from the process's one generator, so where forward draws some (dropout), which replica draws which depends on
// who comes first; with `in_order` replicas run forward one after the other and draw as a loop over the chunks would,
// in every run. Backward is in parallel in any case; on CPUs it cannot be differentiated again.
//
// On a device a replica's thread has it as the current one, and adds its work to the caller's current streams; copies
// between devices are ordered by libtorch. The host waits for none of it.
//
// Used by one thread at a time. Errors: UsageError; what forward or backward of a replica throws, of the first one.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/parallel/module_pointer.h"
#include "lockstep/parallel/nested_tensors.h"
#include "lockstep/parallel/replica_tensors.h"
#include "lockstep/parallel/replica_threads.h"

namespace lockstep::parallel {

struct ReplicaOptions {
  std::optional<at::Device> output_device = {};  ///< where outputs are joined; none: on the first device
  std::int64_t dim = 0;                          ///< of inputs and outputs: along which samples lie
  bool in_order = false;                         ///< forward passes one after the other
};

namespace detail {

/// The chunks of all tensors, first by chunk; on the devices. One chunk of everything when there are no tensors.
std::vector<std::vector<at::Tensor>> chunks_of(const std::vector<at::Tensor*>& tensors,
                                               const std::vector<at::Device>& devices, std::int64_t dim);
/// The tensors of all parts joined, `parts` first by part.
std::vector<at::Tensor> joined(const std::vector<std::vector<at::Tensor>>& parts, at::Device device, std::int64_t dim);

std::vector<at::Tensor> copy_of(const std::vector<at::Tensor*>& tensors);
void set_all(const std::vector<at::Tensor*>& tensors, const std::vector<at::Tensor>& to);

/// One forward pass: what its backward needs.
///
/// On the CPU, where autograd has one thread, each replica has a graph of its own, whose backward runs in the replica's
/// thread within that of the whole. Of each device autograd has a thread, and a backward within another would wait for
/// the thread that it keeps waiting; so with a device there is one graph, as Python's is.
class ReplicaPass {
 public:
  ReplicaPass(std::shared_ptr<ReplicaThreads> threads, std::shared_ptr<ReplicaTensors> replicas, ReplicaOptions options,
              std::vector<std::vector<at::Tensor>> chunks, std::vector<at::Device> devices);

  int count() const { return int(chunks_.size()); }
  /// What replica i gets; on CPUs its graph begins there.
  const std::vector<at::Tensor>& inputs(int i) const { return inputs_[std::size_t(i)]; }
  void set_outputs(int i, std::vector<at::Tensor> outputs) { outputs_[std::size_t(i)] = std::move(outputs); }
  void run(const std::function<void(int)>& forward) const { threads_->run(count(), forward, options_.in_order); }

  /// The outputs joined, with a graph whose backward runs that of all replicas.
  std::vector<at::Tensor> joined_outputs(const std::shared_ptr<ReplicaPass>& self) const;

  /// By replica, the gradients of its inputs and trained parameters, undefined where there are none; `gradients`: of
  /// the joined outputs that are defined.
  std::vector<std::vector<at::Tensor>> backward(const std::vector<at::Tensor>& gradients, bool keep_graph);

  at::Device first_device() const { return devices_.front(); }

 private:
  std::vector<at::Tensor> gradients_of(int i, const std::vector<at::Tensor>& gradients, bool keep_graph) const;
  at::Tensor part_of(const at::Tensor& gradient, int i, std::size_t output) const;

  std::shared_ptr<ReplicaThreads> threads_;
  std::shared_ptr<ReplicaTensors> replicas_;
  ReplicaOptions options_;
  std::vector<at::Device> devices_;
  bool one_graph_;
  std::vector<std::vector<at::Tensor>> chunks_;
  std::vector<std::vector<at::Tensor>> inputs_;
  std::vector<std::vector<at::Tensor>> outputs_;
  std::vector<at::Tensor> trained_;               ///< the model's
  std::vector<std::vector<at::Tensor>> weights_;  ///< the same by replica
};

std::shared_ptr<torch::nn::Module> clone_of(const torch::nn::Module& module, at::Device device);
void check_devices(const torch::nn::Module& module, const std::vector<at::Device>& devices);
/// Where its first parameter is, or buffer; without any the CPU.
at::Device device_of(const torch::nn::Module& module);
/// Lets gradients of the replica's parameters go on to the model's.
void join_gradients(const torch::nn::Module& module, const torch::nn::Module& replica);

template <class Impl>
std::shared_ptr<Impl> typed(const std::shared_ptr<Impl>&, std::shared_ptr<torch::nn::Module> module) {
  return std::dynamic_pointer_cast<Impl>(std::move(module));
}
template <class Module>
requires requires { typename Module::ContainedType; }
Module typed(const Module&, std::shared_ptr<torch::nn::Module> module) {
  return Module(std::dynamic_pointer_cast<typename Module::ContainedType>(std::move(module)));
}

template <class T>
std::vector<T> with_tensors(const T& value, const std::vector<std::vector<at::Tensor>>& parts) {
  std::vector<T> found(parts.size(), value);
  for (std::size_t i = 0; i < parts.size(); ++i) set_all(tensors_in(found[i]), parts[i]);
  return found;
}

}  // namespace detail

/// Cuts the tensors in `value` for the devices; as many values as there are chunks. torch.nn.parallel.scatter.
template <class T>
std::vector<T> scatter(T value, const std::vector<at::Device>& devices, std::int64_t dim = 0) {
  return detail::with_tensors(value, detail::chunks_of(tensors_in(value), devices, dim));
}

/// Joins the tensors in values of one shape on `device`; torch.nn.parallel.gather.
template <class T>
T gather(std::vector<T> values, at::Device device, std::int64_t dim = 0) {
  std::vector<std::vector<at::Tensor>> parts;
  for (T& value : values) parts.push_back(detail::copy_of(tensors_in(value)));
  const std::vector<at::Tensor> whole = detail::joined(parts, device, dim);
  detail::set_all(tensors_in(values.front()), whole);
  return std::move(values.front());
}

/// Copies of `module`, which is on the first device, one for each device; gradients of their parameters go to the
/// module's. torch.nn.parallel.replicate. UsageError when it has no clone().
template <ModulePointer Module>
std::vector<Module> replicate(const Module& module, const std::vector<at::Device>& devices) {
  const torch::nn::Module& source = *detail::module_pointer(module);
  detail::check_devices(source, devices);
  std::vector<Module> replicas;
  for (const at::Device device : devices) {
    const std::shared_ptr<torch::nn::Module> copy = detail::clone_of(source, device);
    detail::join_gradients(source, *copy);
    replicas.push_back(detail::typed(module, copy));
  }
  return replicas;
}

/// What modules[i]->forward makes of the tuple inputs[i], each in a thread of its own.
/// torch.nn.parallel.parallel_apply. Backward through the results is autograd's, on the CPU in one thread;
/// DataParallel's is one thread per replica.
template <ModulePointer Module, class... Inputs>
auto parallel_apply(std::vector<Module> modules, const std::vector<std::tuple<Inputs...>>& inputs) {
  using Output = std::decay_t<decltype(modules.front()->forward(std::declval<Inputs>()...))>;
  std::vector<std::optional<Output>> found(inputs.size());
  std::vector<at::Device> devices;
  for (const Module& module : modules) devices.push_back(detail::device_of(*detail::module_pointer(module)));
  ReplicaThreads threads(int(inputs.size()), std::move(devices));
  threads.run(int(inputs.size()), [&](int index) {
    const auto i = std::size_t(index);
    found[i] = std::apply([&](const auto&... each) { return modules.at(i)->forward(each...); }, inputs[i]);
  });
  std::vector<Output> outputs;
  for (std::optional<Output>& one : found) outputs.push_back(std::move(*one));
  return outputs;
}

template <ModulePointer Module>
class DataParallel {
 public:
  /// Replicas by clone(). UsageError without devices, when parameters or buffers of `module` are not on the first
  /// device, when it has no clone(), and for a SyncBatchNorm in it, which is for processes.
  DataParallel(Module module, std::vector<at::Device> devices, ReplicaOptions options = {})
      : DataParallel(
            module, devices, [&](at::Device device) { return copy_of(module, device); }, options) {}

  /// Replicas by make(device), for a module without clone(); with the model's parameters and buffers by name and size.
  DataParallel(Module module, std::vector<at::Device> devices, const std::function<Module(at::Device)>& make,
               ReplicaOptions options = {})
      : module_(std::move(module)), devices_(std::move(devices)), options_(options) {
    detail::check_devices(*detail::module_pointer(module_), devices_);
    ReplicaTensors::Modules pointers;
    for (const at::Device device : devices_) {
      replicas_.push_back(make(device));
      pointers.push_back(detail::module_pointer(replicas_.back()));
    }
    tensors_ = std::make_shared<ReplicaTensors>(detail::module_pointer(module_), std::move(pointers), devices_);
    threads_ = std::make_shared<ReplicaThreads>(int(devices_.size()), devices_);
  }

  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    using Arguments = std::tuple<std::decay_t<Inputs>...>;
    using Output = std::decay_t<decltype(module_->forward(std::declval<const std::decay_t<Inputs>&>()...))>;
    Arguments arguments(std::forward<Inputs>(inputs)...);
    auto chunks = detail::chunks_of(tensors_in(arguments), devices_, options_.dim);
    tensors_->refresh(int(chunks.size()));
    const auto pass = std::make_shared<detail::ReplicaPass>(threads_, tensors_, options_, std::move(chunks), devices_);
    std::vector<std::optional<Output>> outputs(std::size_t(pass->count()));
    pass->run([&](int i) {
      Arguments mine = arguments;
      detail::set_all(tensors_in(mine), pass->inputs(i));
      std::optional<Output>& output = outputs[std::size_t(i)];
      output = std::apply([&](const auto&... each) { return replicas_[std::size_t(i)]->forward(each...); }, mine);
      pass->set_outputs(i, detail::copy_of(tensors_in(*output)));
    });
    Output whole = std::move(*outputs.front());
    detail::set_all(tensors_in(whole), pass->joined_outputs(pass));
    return whole;
  }

  const Module& module() const { return module_; }
  const std::vector<at::Device>& devices() const { return devices_; }

 private:
  static Module copy_of(const Module& module, at::Device device) {
    return detail::typed(module, detail::clone_of(*detail::module_pointer(module), device));
  }

  Module module_;
  std::vector<at::Device> devices_;
  ReplicaOptions options_;
  std::vector<Module> replicas_;
  std::shared_ptr<ReplicaTensors> tensors_;
  std::shared_ptr<ReplicaThreads> threads_;
};

/// One forward pass of a DataParallel; torch.nn.parallel.data_parallel.
template <ModulePointer Module, class... Inputs>
auto data_parallel(const Module& module, std::vector<at::Device> devices, ReplicaOptions options, Inputs&&... inputs) {
  return DataParallel<Module>(module, std::move(devices), options)(std::forward<Inputs>(inputs)...);
}

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::data_parallel;
using parallel::DataParallel;
using parallel::gather;
using parallel::parallel_apply;
using parallel::ReplicaOptions;
using parallel::replicate;
using parallel::scatter;
}  // namespace lockstep
